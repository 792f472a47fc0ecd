"""Takes what a broker keeps: a reader of a Redis stream with an inbox, which may die anywhere.

It shares no code with whoever writes the stream. An entry is acknowledged when it stands in the
ledger; what was read and not acknowledged comes again after a crash, and the ledger knows it. The
moment of an entry is the broker's: when it was added, not when somebody came to read it.
"""

import argparse
import hashlib
import json
import socket
import time

from ledger import Ledger

STREAM, GROUP = "events", "takers"


class Refused(Exception):
    """An answer of the broker that is an error."""


class Broker:
    """One connection, which speaks RESP."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.answers = self.socket.makefile("rb")

    def ask(self, *words):
        words = [str(word).encode() for word in words]
        lengths = (b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(lengths))
        return self.answer()

    def answer(self):
        line = self.line()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Refused(rest.decode())
        if kind in b"+:":
            return rest.decode()
        if int(rest) < 0:
            return None
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        text = self.answers.read(int(rest) + 2)
        if len(text) < int(rest) + 2:
            raise ConnectionError("the broker is gone")
        return text[:-2].decode()

    def line(self):
        line = self.answers.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the broker is gone")
        return line


class Taker:
    def __init__(self, args):
        self.port = args.port
        self.ledger = Ledger(args.ledger)
        self.entries = {line["entry"] for line in self.ledger.lines}
        self.effects = {line["id"] for line in self.ledger.lines}

    def go_on(self):
        """Reads until the broker is gone, from what nobody has acknowledged."""
        broker = Broker(self.port)
        try:
            broker.ask("XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM")
        except Refused as refused:
            if not str(refused).startswith("BUSYGROUP"):
                raise
        after = "0"
        while True:
            read = broker.ask(
                "XREADGROUP", "GROUP", GROUP, "one", "COUNT", 200, "BLOCK", 1000, "STREAMS", STREAM, after
            )
            entries = read[0][1] if read else []
            for entry, fields in entries:
                self.take(entry, dict(zip(fields[::2], fields[1::2])), is_last=entry == entries[-1][0])
            if entries:
                broker.ask("XACK", STREAM, GROUP, *(entry for entry, _ in entries))
            elif after == "0":
                after = ">"

    def take(self, entry, fields, is_last):
        if entry in self.entries:
            return
        event, data = fields["id"], fields["data"]
        is_first = event not in self.effects
        said = {"type": fields["type"], "data": json.loads(data)}
        self.ledger.write(
            sync=is_last, what="arrived", entry=entry, id=event, mood="kind", effect=is_first,
            at=int(entry.split("-")[0]) * 1_000_000, sha=hashlib.sha256(data.encode()).hexdigest(),
            body=json.dumps(said) if is_first else None, parent=fields.get("traceparent"),
        )
        self.entries.add(entry)
        self.effects.add(event)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True, help="the broker's")
    parser.add_argument("--ledger", required=True)
    parser.add_argument("--seed", type=int, default=0, help="nothing here is left to chance")
    taker = Taker(parser.parse_args())
    while True:
        try:
            taker.go_on()
        except (OSError, Refused):  # it is killed, or reads its files after that
            time.sleep(0.05)


main()
