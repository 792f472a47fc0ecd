"""Receiver of webhooks: verifies each request, keeps an inbox and a ledger, and injects faults.

It shares no code with the system under test: signatures are verified by the `standardwebhooks`
package. Until `/normal` is requested, some responses are slow, lost, 429 with `Retry-After`, 500, or a
redirect to an address that must never get a request. A request is in the ledger before its response.
"""

import argparse
import asyncio
import hashlib
import random

from ledger import Ledger
from response import respond
from standardwebhooks import Webhook

# The mode of a request, and its share in a thousand.
MODES = [
    ("response lost", 20),  # accepted, and the connection is closed without a response
    ("slow", 30),  # accepted, and the response is slow
    ("late", 5),  # accepted, and the response is slower than a lease
    ("endless body", 5),  # accepted, and the body of the response never ends
    ("busy", 15),  # 429 with Retry-After
    ("server error", 10),  # 500
    ("redirect", 10),  # 307
]
# Accepted after `/hold`, once, without a response until the sender has closed the connection.
HELD = "held"
ACCEPTED = ("normal", "response lost", "slow", "late", "endless body", HELD)


class Receiver:
    def __init__(self, args):
        self.ledger = Ledger(args.ledger)
        self.webhook = Webhook(args.secret)
        self.random = random.Random(args.seed + len(self.ledger.lines))
        self.injects_faults = True
        self.is_gone = False
        self.is_holding = False
        self.trap = None
        # One effect for each id, also after restarts.
        self.effects = {line["id"] for line in self.ledger.lines if line["what"] == "arrived" and line["mode"] in ACCEPTED}
        self.number = len(self.ledger.lines)

    def next_mode(self):
        if self.is_gone:
            return "gone"
        if not self.injects_faults:
            return "normal"
        drawn = self.random.randrange(1000)
        for mode, share in MODES:
            if drawn < share:
                return mode
            drawn -= share
        return "normal"

    async def serve(self, reader, writer):
        try:
            while await self.exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the sender was killed, or the connection was cut
        finally:
            writer.close()

    async def exchange(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(":", 1) for line in head[1:] if line)
        headers = {name: head_value(head, name) for name in headers}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        path = head[0].split(" ")[1]
        if path == "/normal":
            self.injects_faults = False
            return await respond(writer, 200)
        if path in ("/gone", "/available"):
            self.is_gone, self.is_holding = path == "/gone", False
            return await respond(writer, 200)
        if path == "/hold":
            self.is_holding = True
            return await respond(writer, 200)
        mode = self.next_mode()
        try:
            self.webhook.verify(body, headers)
        except Exception as error:  # every reason is recorded, of any class
            self.ledger.write(what="unverified", why=repr(error), id=headers.get("webhook-id"))
            return await respond(writer, 401)
        event = headers["webhook-id"]
        if path == "/rejecting":
            return await self.reject_some(event, writer)
        if self.is_holding:
            self.is_holding, mode = False, HELD
        self.number += 1
        number, after = self.number, None
        if mode == "busy":
            after = self.random.choice([1, 2])
        is_first = mode in ACCEPTED and event not in self.effects
        if is_first:
            self.effects.add(event)
        self.ledger.write(
            what="arrived", n=number, id=event, mode=mode, effect=is_first, retry_after=after,
            sha=hashlib.sha256(body).hexdigest(), body=body.decode() if is_first else None,
            parent=headers.get("traceparent"),
        )
        if mode == "response lost":
            return False
        if mode == HELD:
            await reader.read()
            return False
        if mode == "busy":
            return await respond(writer, 429, f"Retry-After: {after}\r\n")
        if mode == "server error":
            return await respond(writer, 500)
        if mode == "gone":
            return await respond(writer, 410)
        if mode == "redirect":
            return await respond(writer, 307, f"Location: {self.trap}\r\n")
        if mode == "slow":
            await asyncio.sleep(self.random.uniform(0.05, 1.5))
        if mode == "late":
            await asyncio.sleep(self.random.uniform(2.5, 5))
        if mode == "endless body":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(600):
                writer.write(b"1\r\nx\r\n")
                await writer.drain()
                await asyncio.sleep(0.1)
            return False
        self.ledger.write(sync=False, what="responded", n=number)
        return await respond(writer, 204)

    async def reject_some(self, event, writer):
        """Accepts most events, and always rejects the others, which must become dead letters."""
        is_accepted = int(hashlib.sha256(event.encode()).hexdigest(), 16) % 40 > 0
        self.ledger.write(what="accepted" if is_accepted else "rejected", id=event)
        return await respond(writer, 204 if is_accepted else 422)

    async def redirected(self, reader, writer):
        """Records a request that followed a redirect, which no sender of webhooks may do."""
        await reader.readuntil(b"\r\n\r\n")
        self.ledger.write(what="redirected")
        await respond(writer, 204)
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
    trap = await asyncio.start_server(receiver.redirected, "127.0.0.1", 0)
    receiver.trap = f"http://127.0.0.1:{trap.sockets[0].getsockname()[1]}/"
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", args.port, backlog=512)
    await server.serve_forever()


asyncio.run(main())
