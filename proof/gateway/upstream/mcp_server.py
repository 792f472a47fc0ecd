"""An unchanged MCP server on the Python SDK, as a gateway finds it.

It knows nothing of idempotency keys. Its tool writes a line to a ledger, after it has reported its
progress.

    python3 mcp_server.py PORT LEDGER json|stream
"""

import sys

from mcp.server.fastmcp import Context, FastMCP

port, ledger, form = sys.argv[1:]
server = FastMCP("orders", host="127.0.0.1", port=int(port), json_response=form == "json")


@server.tool()
async def place_order(item: str, context: Context) -> str:
    """Places an order and returns its number."""
    await context.report_progress(1, 2)
    with open(ledger, "a+") as orders:
        orders.write(item + "\n")
        orders.seek(0)
        return "order %d" % len(orders.readlines())


if __name__ == "__main__":
    server.run(transport="streamable-http")
