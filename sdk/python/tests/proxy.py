"""A TCP proxy that can lose the request or the response of one COMMIT."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from enum import Enum

_COMMIT = re.compile(rb"\bCOMMIT\b")
_PREPARED = re.compile(rb"P....([^\0]+)\0COMMIT;?\0", re.DOTALL)


class Lose(Enum):
    """What is lost."""

    NOTHING = 0
    COMMIT_REQUEST = 1
    COMMIT_RESPONSE = 2


class Proxy:
    """Forwards connections to a server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._lose = Lose.NOTHING
        self.lost = 0
        self.waits = 0
        """Messages ReadyForQuery of the server: the round trips of the clients."""
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, what: Lose) -> None:
        """Lose this of the next COMMIT."""
        with self._lock:
            self._lose = what

    def close(self) -> None:
        """Accept no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(self._target)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        muted = threading.Event()
        back = threading.Thread(target=self._back, args=(server, client, muted), daemon=True)
        back.start()
        names: set[bytes] = set()
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                what = self._commit(data, names)
                if what is Lose.COMMIT_REQUEST:
                    break
                if what is Lose.COMMIT_RESPONSE:
                    muted.set()
                server.sendall(data)
        _end(client)
        _end(server)

    def _back(self, server: socket.socket, client: socket.socket, muted: threading.Event) -> None:
        with contextlib.suppress(OSError):
            unread = b""
            while data := server.recv(65536):
                if muted.is_set():
                    break
                unread = self._count(unread + data)
                client.sendall(data)
        _end(client)
        _end(server)

    def _count(self, data: bytes) -> bytes:
        """Count the messages ReadyForQuery, and return the start of an incomplete message."""
        while len(data) >= 5 and len(data) > (length := int.from_bytes(data[1:5], "big")):
            if data[:1] == b"Z":
                with self._lock:
                    self.waits += 1
            data = data[length + 1 :]
        return data

    def _commit(self, data: bytes, names: set[bytes]) -> Lose:
        # A driver that has sent COMMIT several times prepares it, and then sends only its name.
        names.update(_PREPARED.findall(data))
        is_commit = _COMMIT.search(data) is not None or any(
            b"\0" + name + b"\0" in data for name in names
        )
        with self._lock:
            if self._lose is Lose.NOTHING or not is_commit:
                return Lose.NOTHING
            what, self._lose = self._lose, Lose.NOTHING
            self.lost += 1
            return what


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
