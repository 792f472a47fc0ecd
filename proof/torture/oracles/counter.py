"""Overloaded receiver: records every attempt, and rejects most of them.

An attempt is in the ledger before its response. Until `/normal` is requested, more than half of all
attempts get a 503, some of them with `Retry-After: 1`.
"""

import argparse
import asyncio
import random

from ledger import Ledger
from response import respond

# Rejected attempts in a hundred: without and with `Retry-After`.
BUSY, LATER = 40, 20


class Counter:
    def __init__(self, args):
        self.ledger = Ledger(args.ledger)
        self.random = random.Random(args.seed + len(self.ledger.lines))
        self.injects_faults = True

    async def serve(self, reader, writer):
        try:
            while await self.exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client was killed
        finally:
            writer.close()

    async def exchange(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        lines = (line.split(":", 1) for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, value in lines}
        await reader.readexactly(int(headers.get("content-length", "0")))
        if head[0].split(" ")[1] == "/normal":
            self.injects_faults = False
            return await respond(writer, 204)
        drawn, after = self.random.randrange(100), None
        mode = "normal"
        if self.injects_faults and drawn < BUSY + LATER:
            mode = "busy"
            after = 1 if drawn < LATER else None
        self.ledger.write(
            sync=False, what="request", id=headers["idempotency-key"], client=headers["user-agent"],
            mode=mode, retry_after=after,
        )
        if mode == "normal":
            return await respond(writer, 204)
        return await respond(writer, 503, f"Retry-After: {after}\r\n" if after else "")


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ledger", required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    server = await asyncio.start_server(Counter(args).serve, "127.0.0.1", args.port, backlog=512)
    await server.serve_forever()


asyncio.run(main())
