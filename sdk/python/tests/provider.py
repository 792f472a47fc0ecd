"""A payment provider that recognizes repeated calls by their key."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from hapax import Code, Problem

DECLINED = Code("PROVIDER.card.declined", 402, "The card was declined")


class Provider:
    """Its decision about a new key: ``charge``; ``decline``; ``lost``, which charges and sends no
    response; or ``fail``, which is 500 without a charge."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.charges: dict[str, str] = {}
        self.decide: Callable[[str], str] = lambda _: "charge"
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                provider.answer(self, self.headers["Idempotency-Key"])

            def do_GET(self) -> None:
                found = provider.charges.get(self.headers["Idempotency-Key"])
                provider.send(self, 404 if found is None else 200, {"id": found})

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler, key: str) -> None:
        self.calls.append(key)
        decision = "charge" if key in self.charges else self.decide(key)
        if decision in {"charge", "lost"}:
            self.charges.setdefault(key, f"ch_{len(self.charges) + 1}")
        if decision == "charge":
            self.send(handler, 200, {"id": self.charges[key]})
        elif decision != "lost":
            self.send(handler, 402 if decision == "decline" else 500, {})

    def send(self, handler: BaseHTTPRequestHandler, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        handler.send_response(status)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def charge(url: str, key: str) -> dict[str, str]:
    """Call the provider. A response without a meaning leaves the outcome unknown."""
    response = httpx.post(url, headers={"Idempotency-Key": key}, timeout=60)
    if response.status_code == 402:
        raise Problem(DECLINED, "the card was declined")
    response.raise_for_status()
    found: dict[str, str] = response.json()
    return found


def find(url: str, key: str) -> dict[str, str] | None:
    """Ask the provider about a key."""
    response = httpx.get(url, headers={"Idempotency-Key": key})
    return response.json() if response.status_code == 200 else None
