"""A far side that has too much to do: it counts who asks, and sends most of them away.

Every attempt stands in the ledger before it is answered. While it is unkind, more than half of all
attempts are told to come again, some of them not before a second has passed.
"""

import argparse
import asyncio
import random

from answer import answer
from ledger import Ledger

# In a hundred: sent away, and sent away for a second.
BUSY, LATER = 40, 20


class Counter:
    def __init__(self, args):
        self.ledger = Ledger(args.ledger)
        self.random = random.Random(args.seed + len(self.ledger.lines))
        self.is_kind = False

    async def serve(self, reader, writer):
        try:
            while await self.exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # whoever called was killed
        finally:
            writer.close()

    async def exchange(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        lines = (line.split(":", 1) for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, value in lines}
        await reader.readexactly(int(headers.get("content-length", "0")))
        if head[0].split(" ")[1] == "/kind":
            self.is_kind = True
            return await answer(writer, 204)
        drawn, after = self.random.randrange(100), None
        mood = "kind"
        if not self.is_kind and drawn < BUSY + LATER:
            mood = "busy"
            after = 1 if drawn < LATER else None
        self.ledger.write(
            sync=False, what="asked", id=headers["idempotency-key"], who=headers["user-agent"],
            mood=mood, retry_after=after,
        )
        if mood == "kind":
            return await answer(writer, 204)
        return await answer(writer, 503, f"Retry-After: {after}\r\n" if after else "")


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ledger", required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    server = await asyncio.start_server(Counter(args).serve, "127.0.0.1", args.port, backlog=512)
    await server.serve_forever()


asyncio.run(main())
