"""Mailbox: an SMTP server with a ledger, which sometimes cuts the connection before its acknowledgement.

A mail is in the ledger, on disk, before it is acknowledged. If the connection is cut between the final
dot and the acknowledgement, the sender does not know whether the mail was accepted.
"""

import argparse
import asyncio
import email
import random

from ledger import Ledger


class Mailbox:
    def __init__(self, args):
        self.ledger = Ledger(args.ledger)
        self.random = random.Random(args.seed + len(self.ledger.lines))
        # Each mail fails once at most: its sender waits long before the third attempt.
        self.failed = {line["id"] for line in self.ledger.lines if line["mode"] != "normal"}
        self.injects_faults = True

    async def serve(self, reader, writer):
        try:
            await self.session(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the sender was killed, or the connection was cut
        finally:
            writer.close()

    async def session(self, reader, writer):
        async def say(text):
            writer.write(text.encode() + b"\r\n")
            await writer.drain()

        await say("220 mailbox ESMTP")
        to = []
        while True:
            line = (await reader.readuntil(b"\n")).decode("latin-1").strip()
            verb = line.partition(" ")[0].upper()
            if verb == "EHLO":
                await say("250-mailbox")
                await say("250 8BITMIME")
            elif verb == "MAIL":
                to = []
                await say("250 ok")
            elif verb == "RCPT":
                to.append(line.split(":", 1)[1].strip().strip("<>").split(">")[0])
                await say("250 ok")
            elif verb == "DATA":
                await say("354 go on")
                text = b""
                while not text.endswith(b"\r\n.\r\n"):
                    text += await reader.readuntil(b"\n")
                if not await self.accept(to, text[:-5], say):
                    return
            elif verb == "QUIT":
                await say("221 bye")
                return
            elif verb == "NORMAL":
                self.injects_faults = False
                await say("250 ok")
            else:
                await say("250 ok")

    async def accept(self, to, text, say):
        name = email.message_from_bytes(text)["Message-ID"]
        mode = "normal"
        if self.injects_faults and name not in self.failed and self.random.randrange(100) < 10:
            mode = self.random.choice(["connection cut", "temporary failure"])
            self.failed.add(name)
        self.ledger.write(what="mail", id=name, to=to, mode=mode)
        if mode == "temporary failure":
            await say("451 try again later")
        elif mode == "normal":
            await say("250 accepted")
        return mode != "connection cut"


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ledger", required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    server = await asyncio.start_server(Mailbox(args).serve, "127.0.0.1", args.port)
    await server.serve_forever()


asyncio.run(main())
