"""Stream reader: reads a Redis stream, with an inbox, and may be killed at any time.

It shares no code with the system under test. An entry is acknowledged after it is in the ledger. The
broker delivers entries that were read and not acknowledged again after a crash, and the ledger contains
their ids. The time of an entry is that at which the broker added it, not that at which it was read.
"""

import argparse
import hashlib
import json
import socket
import time

from ledger import Ledger

STREAM, GROUP = "events", "readers"


class BrokerError(Exception):
    """An error that the broker returned."""


class Broker:
    """One connection, which speaks RESP."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.responses = self.socket.makefile("rb")

    def send(self, *words):
        words = [str(word).encode() for word in words]
        lengths = (b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(lengths))
        return self.response()

    def response(self):
        line = self.line()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise BrokerError(rest.decode())
        if kind in b"+:":
            return rest.decode()
        if int(rest) < 0:
            return None
        if kind == b"*":
            return [self.response() for _ in range(int(rest))]
        text = self.responses.read(int(rest) + 2)
        if len(text) < int(rest) + 2:
            raise ConnectionError("the broker has closed the connection")
        return text[:-2].decode()

    def line(self):
        line = self.responses.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the broker has closed the connection")
        return line


class StreamReader:
    def __init__(self, args):
        self.port = args.port
        self.ledger = Ledger(args.ledger)
        self.entries = {line["entry"] for line in self.ledger.lines}
        self.effects = {line["id"] for line in self.ledger.lines}

    def read(self):
        """Reads until the connection is closed, beginning with the unacknowledged entries."""
        broker = Broker(self.port)
        try:
            broker.send("XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM")
        except BrokerError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        after = "0"
        while True:
            streams = broker.send(
                "XREADGROUP", "GROUP", GROUP, "one", "COUNT", 200, "BLOCK", 1000, "STREAMS", STREAM, after
            )
            entries = streams[0][1] if streams else []
            for entry, fields in entries:
                self.accept(entry, dict(zip(fields[::2], fields[1::2])), is_last=entry == entries[-1][0])
            if entries:
                broker.send("XACK", STREAM, GROUP, *(entry for entry, _ in entries))
            elif after == "0":
                after = ">"

    def accept(self, entry, fields, is_last):
        if entry in self.entries:
            return
        event, data = fields["id"], fields["data"]
        is_first = event not in self.effects
        content = {"type": fields["type"], "data": json.loads(data)}
        self.ledger.write(
            sync=is_last, what="arrived", entry=entry, id=event, mode="normal", effect=is_first,
            at=int(entry.split("-")[0]) * 1_000_000, sha=hashlib.sha256(data.encode()).hexdigest(),
            body=json.dumps(content) if is_first else None, parent=fields.get("traceparent"),
        )
        self.entries.add(entry)
        self.effects.add(event)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True, help="port of the broker")
    parser.add_argument("--ledger", required=True)
    parser.add_argument("--seed", type=int, default=0, help="not used")
    reader = StreamReader(parser.parse_args())
    while True:
        try:
            reader.read()
        except (OSError, BrokerError):  # the broker was killed, or loads its files after a restart
            time.sleep(0.05)


main()
