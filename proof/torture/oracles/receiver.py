"""The far side of a webhook: verifies, keeps an inbox and a ledger, and is not always kind.

It shares no code with whoever calls it: signatures are verified by the `standardwebhooks` package,
moments are of its own clock. While it is unkind it is slow, loses answers, asks to come again later,
fails, and redirects to a place where nobody may ever arrive. What it did stands in the ledger
before the answer goes out.
"""

import argparse
import asyncio
import hashlib
import random

from answer import answer
from ledger import Ledger
from standardwebhooks import Webhook

# What becomes of a request, and how often in a thousand.
MOODS = [
    ("lost", 20),  # taken, and the connection closes without a word
    ("slow", 30),  # taken, and answered late
    ("late", 5),  # taken, and answered later than a lease
    ("drip", 5),  # taken, and the body of the answer never ends
    ("busy", 15),  # 429 with Retry-After
    ("broken", 10),  # 500
    ("elsewhere", 10),  # a redirect
]
# Taken on demand, once, and not answered until the sender is gone.
HELD = "held"
TAKEN = ("kind", "lost", "slow", "late", "drip", HELD)


class Receiver:
    def __init__(self, args):
        self.ledger = Ledger(args.ledger)
        self.webhook = Webhook(args.secret)
        self.random = random.Random(args.seed + len(self.ledger.lines))
        self.is_kind = False
        self.is_gone = False
        self.is_holding = False
        self.trap = None
        # An effect for each id, whatever was restarted in between.
        self.effects = {line["id"] for line in self.ledger.lines if line["what"] == "arrived" and line["mood"] in TAKEN}
        self.number = len(self.ledger.lines)

    def mood(self):
        if self.is_gone:
            return "gone"
        if self.is_kind:
            return "kind"
        drawn = self.random.randrange(1000)
        for mood, share in MOODS:
            if drawn < share:
                return mood
            drawn -= share
        return "kind"

    async def serve(self, reader, writer):
        try:
            while await self.exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # whoever called was killed, or the line was cut
        finally:
            writer.close()

    async def exchange(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(":", 1) for line in head[1:] if line)
        headers = {name: head_value(head, name) for name in headers}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        path = head[0].split(" ")[1]
        if path == "/kind":
            self.is_kind = True
            return await answer(writer, 200)
        if path in ("/gone", "/back"):
            self.is_gone, self.is_holding = path == "/gone", False
            return await answer(writer, 200)
        if path == "/hold":
            self.is_holding = True
            return await answer(writer, 200)
        mood = self.mood()
        try:
            self.webhook.verify(body, headers)
        except Exception as error:  # every reason is written down, whatever its class
            self.ledger.write(what="refused", why=repr(error), id=headers.get("webhook-id"))
            return await answer(writer, 401)
        event = headers["webhook-id"]
        if path == "/picky":
            return await self.pick(event, writer)
        if self.is_holding:
            self.is_holding, mood = False, HELD
        self.number += 1
        number, after = self.number, None
        if mood == "busy":
            after = self.random.choice([1, 2])
        is_first = mood in TAKEN and event not in self.effects
        if is_first:
            self.effects.add(event)
        self.ledger.write(
            what="arrived", n=number, id=event, mood=mood, effect=is_first, retry_after=after,
            sha=hashlib.sha256(body).hexdigest(), body=body.decode() if is_first else None,
            parent=headers.get("traceparent"),
        )
        if mood == "lost":
            return False
        if mood == HELD:
            await reader.read()
            return False
        if mood == "busy":
            return await answer(writer, 429, f"Retry-After: {after}\r\n")
        if mood == "broken":
            return await answer(writer, 500)
        if mood == "gone":
            return await answer(writer, 410)
        if mood == "elsewhere":
            return await answer(writer, 307, f"Location: {self.trap}\r\n")
        if mood == "slow":
            await asyncio.sleep(self.random.uniform(0.05, 1.5))
        if mood == "late":
            await asyncio.sleep(self.random.uniform(2.5, 5))
        if mood == "drip":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(600):
                writer.write(b"1\r\nx\r\n")
                await writer.drain()
                await asyncio.sleep(0.1)
            return False
        self.ledger.write(sync=False, what="answered", n=number)
        return await answer(writer, 204)

    async def pick(self, event, writer):
        """Takes most events, and some never: those have to be given up."""
        is_taken = int(hashlib.sha256(event.encode()).hexdigest(), 16) % 40 > 0
        self.ledger.write(what="picked" if is_taken else "spurned", id=event)
        return await answer(writer, 204 if is_taken else 422)

    async def strayed(self, reader, writer):
        """Nobody follows a redirect here: a webhook is for one place."""
        await reader.readuntil(b"\r\n\r\n")
        self.ledger.write(what="strayed")
        await answer(writer, 204)
        writer.close()


def head_value(head, name):
    for line in head[1:]:
        found, _, value = line.partition(":")
        if found.lower() == name:
            return value.strip()
    return None


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ledger", required=True)
    parser.add_argument("--secret", required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    receiver = Receiver(args)
    trap = await asyncio.start_server(receiver.strayed, "127.0.0.1", 0)
    receiver.trap = f"http://127.0.0.1:{trap.sockets[0].getsockname()[1]}/"
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", args.port, backlog=512)
    await server.serve_forever()


asyncio.run(main())
