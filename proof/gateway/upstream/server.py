"""An HTTP service with an append-only ledger, and with faults that a request asks for.

A POST appends one line to the ledger, with fsync, before it is answered. The answer contains a random
number, and the line contains the hash of the answer, so a test can tell an answer of this service from
any other. The header X-Fault switches a fault on, such as `slow-head=500` or `cut=17`; the names of the
faults that were switched on are appended to FILE.faults, one a line, so a test can count them.

The parser is strict and records every request that it sees, so a test can count them. Paths that begin
with `/_` are for the test and are not recorded.

    python3 server.py --ledger FILE [--port N]
"""

import argparse
import base64
import hashlib
import json
import os
import re
import secrets
import signal
import socket
import socketserver
import sys
import threading
import time

KEPT = 1 << 20
PIECE = 1 << 16
HEAD_MAX = 1 << 18
TOKEN = re.compile(rb"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
REASONS = {200: "OK", 201: "Created", 204: "No Content", 304: "Not Modified", 400: "Bad Request",
           404: "Not Found", 422: "Unprocessable Content", 429: "Too Many Requests", 500: "Internal Server Error",
           503: "Service Unavailable"}


class Malformed(Exception):
    """The bytes of a connection are not a request."""


class Gone(Exception):
    """The peer has closed the connection."""


class Ledger:
    """The append-only file."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.path = path
        self.file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o644)
        with open(path, "rb") as lines:
            self.entries = [json.loads(line) for line in lines if line.endswith(b"\n")]

    def append(self, key, body, answer_of):
        with self.lock:
            number = len(self.entries) + 1
            answer = answer_of(number)
            entry = {"key": key, "hash": digest(body), "n": number, "answer": digest(answer)}
            line = json.dumps(entry | {"text": answer.decode()}) + "\n"
            os.write(self.file, line.encode())
            os.fsync(self.file)
            self.entries.append(entry | {"text": answer.decode()})
            return answer

    def find(self, key):
        with self.lock:
            return next((it for it in self.entries if it["key"] == key), None)

    def all(self):
        with self.lock:
            return list(self.entries)


def digest(content):
    return hashlib.sha256(content).hexdigest()


class Request:
    """One request as it was read."""

    def __init__(self, method, target, headers, body, trailers, length, body_hash):
        self.method, self.target, self.headers = method, target, headers
        self.body, self.trailers = body, trailers
        self.length, self.body_hash = length, body_hash

    def header(self, name):
        values = [value for known, value in self.headers if known == name]
        return values[0] if values else None

    def faults(self):
        """The faults that the request asks for: names with numbers."""
        asked = {}
        for part in (self.header("x-fault") or "").split(","):
            name, _, value = part.strip().partition("=")
            if name:
                asked[name] = int(value or 0)
        return asked

    def key(self):
        key = self.header("idempotency-key")
        return key.strip('"') if key else None

    def recorded(self):
        return {"method": self.method, "target": self.target, "headers": self.headers,
                "length": self.length, "hash": self.body_hash, "trailers": self.trailers}


class Reader:
    """Reads requests from a connection."""

    def __init__(self, connection):
        self.connection = connection
        self.buffer = b""

    def more(self):
        try:
            piece = self.connection.recv(PIECE)
        except OSError as error:
            raise Gone from error
        if not piece:
            raise Gone
        self.buffer += piece

    def line(self):
        while b"\n" not in self.buffer:
            if len(self.buffer) > HEAD_MAX:
                raise Malformed("a line is too long")
            self.more()
        line, self.buffer = self.buffer.split(b"\n", 1)
        if not line.endswith(b"\r"):
            raise Malformed("a line ends without CR")
        line = line[:-1]
        if b"\r" in line or b"\0" in line:
            raise Malformed("a line contains CR or NUL")
        return line

    def pieces(self, length):
        while length:
            if not self.buffer:
                self.more()
            piece, self.buffer = self.buffer[:length], self.buffer[length:]
            length -= len(piece)
            yield piece

    def fields(self):
        fields = []
        while line := self.line():
            name, colon, value = line.partition(b":")
            if not colon or not TOKEN.match(name):
                raise Malformed("a header is not valid: %r" % line)
            fields.append((name.decode().lower(), value.strip(b" \t").decode("latin-1")))
        return fields

    def chunks(self, trailers):
        while True:
            size = self.line().split(b";")[0]
            if not re.match(rb"^[0-9A-Fa-f]{1,15}$", size):
                raise Malformed("a chunk size is not valid: %r" % size)
            size = int(size, 16)
            if size == 0:
                trailers.extend(self.fields())
                return
            yield from self.pieces(size)
            if self.line():
                raise Malformed("a chunk is longer than its size")

    def request(self):
        while not self.buffer:
            self.more()
        parts = self.line().split(b" ")
        if len(parts) != 3 or not TOKEN.match(parts[0]) or parts[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
            raise Malformed("the first line is not valid: %r" % (parts,))
        method, target = parts[0].decode(), parts[1].decode("latin-1")
        headers = self.fields()
        lengths = [value for name, value in headers if name == "content-length"]
        codings = [value for name, value in headers if name == "transfer-encoding"]
        if len(lengths) > 1 or len(codings) > 1 or (lengths and codings):
            raise Malformed("the length is ambiguous")
        trailers = []
        if codings:
            if codings[0] != "chunked":
                raise Malformed("the coding is not chunked")
            content = self.chunks(trailers)
        elif lengths:
            if not re.match("^[0-9]+$", lengths[0]):
                raise Malformed("the length is not a number")
            content = self.pieces(int(lengths[0]))
        else:
            content = iter(())
        hashed, body, length = hashlib.sha256(), b"", 0
        for piece in content:
            hashed.update(piece)
            length += len(piece)
            if len(body) < KEPT:
                body += piece
        return Request(method, target, headers, body, trailers, length, hashed.hexdigest())


class Service:
    """What the connections share."""

    def __init__(self, ledger, faults):
        self.ledger = ledger
        self.faults = os.open(faults, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        self.lock = threading.Lock()
        self.seen = []
        self.steps = threading.Semaphore(0)

    def record(self, what):
        with self.lock:
            self.seen.append(what)

    def count(self, faults):
        if faults:
            os.write(self.faults, "".join(name + "\n" for name in faults).encode())


class Connection(socketserver.BaseRequestHandler):
    """One connection with its requests."""

    service = None

    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = Reader(self.request)
        try:
            while True:
                request = reader.request()
                if not request.target.startswith("/_"):
                    self.service.record(request.recorded())
                if not self.answer(request, reader):
                    return
        except Malformed as problem:
            self.service.record({"malformed": str(problem)})
            self.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        except (Gone, OSError):
            return

    def write(self, content):
        self.request.sendall(content)

    def answer(self, request, reader):
        """Answers a request. Returns whether the connection stays open."""
        path = request.target.split("?")[0]
        query = dict(pair.partition("=")[::2] for pair in request.target.partition("?")[2].split("&"))
        if path == "/_seen":
            with self.service.lock:
                seen = list(self.service.seen)
            return self.reply(200, json.dumps(seen).encode())
        if path == "/_forget":
            with self.service.lock:
                self.service.seen.clear()
            return self.reply(204, None)
        if path == "/_next":
            self.service.steps.release()
            return self.reply(204, None)
        if request.method == "GET":
            return self.get(path, query, request, reader)
        if request.method == "HEAD":
            return self.reply(200, None, [("Content-Length", "17")])
        if path == "/upload":
            content = {"bytes": request.length, "hash": request.body_hash,
                       "trailers": request.trailers}
            return self.reply(200, json.dumps(content).encode())
        if path == "/echo":
            return self.reply(200, json.dumps(request.recorded()).encode())
        return self.order(request)

    def get(self, path, query, request, reader):
        if path.startswith("/by-key/"):
            entry = self.service.ledger.find(path[len("/by-key/"):])
            if entry is None:
                return self.reply(404, b"{}")
            return self.reply(200, entry["text"].encode(), [("X-Answer", entry["answer"])])
        if path == "/orders":
            return self.reply(200, json.dumps({"items": self.service.ledger.all()}).encode())
        if path == "/download":
            return self.download(int(query["bytes"]))
        if path == "/late":
            # The body is written after the head has left the gateway, and looks like a head.
            body = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
            self.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            self.service.steps.acquire()
            self.write(body)
            return True
        if path == "/events":
            return self.events(int(query["count"]))
        if path == "/trailers":
            self.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
                       b"5\r\nhello\r\n0\r\nX-Sum: 42\r\n\r\n")
            return True
        if path == "/websocket":
            return self.websocket(request, reader)
        return self.reply(200, json.dumps(request.recorded()).encode())

    def reply(self, status, body, headers=()):
        self.write(response(status, body, headers))
        return True

    def download(self, length):
        self.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length)
        piece = b"\x5a" * PIECE
        while length:
            self.write(piece[:length])
            length -= min(length, PIECE)
        return True

    def events(self, count):
        """Sends an event for each call of /_next."""
        self.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                   b"Transfer-Encoding: chunked\r\n\r\n")
        for number in range(1, count + 1):
            self.service.steps.acquire()
            event = b"data: %d\n\n" % number
            self.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.write(b"0\r\n\r\n")
        return True

    def websocket(self, request, reader):
        """Echoes frames (RFC 6455)."""
        asked = request.header("sec-websocket-key")
        if (request.header("upgrade") or "").lower() != "websocket" or not asked:
            return self.reply(422, b"{}")
        known = asked.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(known).digest())
        self.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                   b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        while True:
            first, second = b"".join(reader.pieces(2))
            length = second & 127
            if length >= 126:
                length = int.from_bytes(b"".join(reader.pieces(2 if length == 126 else 8)), "big")
            mask = b"".join(reader.pieces(4))
            body = b"".join(reader.pieces(length))
            body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(body))
            size = bytes([length]) if length < 126 else b"\x7e" + length.to_bytes(2, "big")
            if length > 65535:
                size = b"\x7f" + length.to_bytes(8, "big")
            self.write(bytes([first]) + size + body)
            if first & 15 == 8:
                return False

    def order(self, request):
        """Writes the ledger, with the faults that the request asks for."""
        faults = request.faults()
        refused = refusal(request.body)
        if refused is not None:
            status, text = refused
            return self.reply(status, text, [("Retry-After", "1")] if status == 429 else ())
        self.service.count(faults)
        if member(request.body, "item") == "queued":
            faults["status"] = 202
        if "hang-before" in faults:
            return self.hang()
        if "kill-before" in faults:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(slow_ms(request.body) / 1000)

        def answer_of(number):
            text = {"id": number, "key": request.key(), "nonce": secrets.token_hex(8)}
            return json.dumps(text).encode()

        body = self.service.ledger.append(request.key(), request.body, answer_of)
        if "kill-after" in faults:
            os.kill(os.getpid(), signal.SIGKILL)
        if "hang" in faults:
            return self.hang()
        if "close" in faults:
            return False
        time.sleep(faults.get("slow-head", 0) / 1000)
        return self.faulty(faults, body)

    def faulty(self, faults, body):
        status = faults.get("status", 201)
        headers = [("X-Answer", digest(body)), ("Content-Type", "application/json")]
        if "early" in faults:
            self.write(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")
        if "connection-close" in faults:
            headers.append(("Connection", "close"))
            self.write(response(status, body, headers))
            return False
        if "no-length" in faults:
            self.write(head(status, headers) + body)
            return False
        if "coding" in faults:
            # A coding other than chunked: the body ends with the connection.
            self.write(head(status, headers + [("Transfer-Encoding", "identity")]) + body[:20])
            return False
        if "endless" in faults or "endless-hang" in faults:
            headers.append(("Transfer-Encoding", "chunked"))
            self.write(head(status, headers) + b"%x\r\n%s\r\n" % (len(body), body))
            return self.hang() if "endless-hang" in faults else False
        if "flood" in faults:
            headers.append(("Transfer-Encoding", "chunked"))
            self.write(head(status, headers))
            while True:
                self.write(b"10000\r\n" + b"\x5a" * PIECE + b"\r\n")
        if "trailers" in faults:
            headers += [("Transfer-Encoding", "chunked"), ("Trailer", "X-Sum")]
            self.write(head(status, headers) + b"%x\r\n%s\r\n0\r\nX-Sum: 1\r\n\r\n" % (len(body), body))
            return True
        if "body-of-204" in faults:
            self.write(head(204, headers + [("Content-Length", str(len(body)))]) + body)
            return False
        length = len(body) + faults.get("long-length", 0) - faults.get("short-length", 0)
        whole = head(status, headers + [("Content-Length", str(length))]) + body
        if "cut" in faults:
            self.write(whole[:faults["cut"]])
            return False
        if "slow-body" in faults:
            middle = len(whole) - len(body) // 2
            self.write(whole[:middle])
            time.sleep(faults["slow-body"] / 1000)
            self.write(whole[middle:])
            return True
        self.write(whole)
        return length == len(body)

    def hang(self):
        """Says nothing until the peer closes the connection."""
        while self.request.recv(PIECE):
            pass
        return False


def head(status, headers):
    lines = "".join("%s: %s\r\n" % pair for pair in headers)
    return ("HTTP/1.1 %d %s\r\n%s\r\n" % (status, REASONS.get(status, "Status"), lines)).encode()


def response(status, body, headers=()):
    headers = list(headers)
    if body is not None:
        headers.append(("Content-Length", str(len(body))))
    return head(status, headers) + (body or b"")


def member(body, name):
    try:
        return json.loads(body).get(name)
    except (ValueError, AttributeError):
        return None


def slow_ms(body):
    value = member(body, "slow_ms")
    return value if isinstance(value, (int, float)) else 0


REFUSALS = {
    "sold out": (422, b'{"error": "sold out"}'),
    "unreadable": (400, b'{"error": "unreadable"}'),
    "too many": (429, b'{"error": "too many"}'),
    "broken": (500, b'{"error": "broken"}'),
}


def refusal(body):
    """The status and the text with which an order is refused, before it has an effect."""
    amount = member(body, "amount")
    if isinstance(amount, (int, float)) and amount < 0:
        return 422, b'{"error": "the amount is negative"}'
    item = member(body, "item")
    return REFUSALS.get(item) if isinstance(item, str) else None


class Server(socketserver.ThreadingTCPServer):
    """A thread for each connection."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ledger", required=True)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    Connection.service = Service(Ledger(arguments.ledger), arguments.ledger + ".faults")
    with Server(("127.0.0.1", arguments.port), Connection) as server:
        print("listening %d" % server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
