"""A client on the Python SDK of MCP: calls a tool several times, each time in a new session, and prints
the results as JSON.

    python3 mcp_client.py URL KEY ITEM [KEY ITEM ...]
"""

import asyncio
import json
import sys

import httpx
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client


async def call(session, key, item):
    progress = []

    async def report(done, total, message):
        progress.append([done, total])

    try:
        called = await session.call_tool("place_order", {"item": item}, progress_callback=report,
                                         meta={"io.hapax/idempotency-key": key})
    except McpError as error:
        return {"error": error.error.code, "data": error.error.data}
    return {"result": called.model_dump(mode="json"), "progress": progress}


async def in_session(url, key, item):
    async with (
        httpx.AsyncClient(trust_env=False, timeout=60) as client,
        streamable_http_client(url, http_client=client) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        return {"tools": tools, **await call(session, key, item)}


async def main():
    url, *calls = sys.argv[1:]
    pairs = zip(calls[::2], calls[1::2])
    print(json.dumps([await in_session(url, key, item) for key, item in pairs]))


if __name__ == "__main__":
    asyncio.run(main())
