"""The far side of mail: an SMTP server with a ledger, which now and then breaks off at the worst moment.

A mail stands in the ledger, on the disk, before it is acknowledged; where the connection is cut
between the final dot and the acknowledgement, the sender cannot know.
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
        # Each is cut off once at most: its sender waits long before the third attempt.
        self.cut = {line["id"] for line in self.ledger.lines if line["mood"] != "kind"}
        self.is_kind = False

    async def serve(self, reader, writer):
        try:
            await self.dialogue(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # whoever called was killed, or the line was cut
        finally:
            writer.close()

    async def dialogue(self, reader, writer):
        async def say(text):
            writer.write(text.encode() + b"\r\n")
            await writer.drain()

        await say("220 mailbox ESMTP")
        to = []
        while True:
            line = (await reader.readuntil(b"\n")).decode("latin-1").strip()
            verb = line[:4].upper()
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
                if not await self.take(to, text[:-5], say):
                    return
            elif verb == "QUIT":
                await say("221 bye")
                return
            elif verb == "KIND":
                self.is_kind = True
                await say("250 ok")
            else:
                await say("250 ok")

    async def take(self, to, text, say):
        name = email.message_from_bytes(text)["Message-ID"]
        mood = "kind"
        if not self.is_kind and name not in self.cut and self.random.randrange(100) < 10:
            mood = self.random.choice(["cut", "later"])
            self.cut.add(name)
        self.ledger.write(what="mail", id=name, to=to, mood=mood)
        if mood == "later":
            await say("451 come again")
        elif mood == "kind":
            await say("250 taken")
        return mood != "cut"


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ledger", required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    server = await asyncio.start_server(Mailbox(args).serve, "127.0.0.1", args.port)
    await server.serve_forever()


asyncio.run(main())
