"""Requests and responses as the core sees them: no framework, all bytes in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Headers = list[tuple[str, str]]
"""Pairs of a name in lower case and a value. Each character of a value is one byte (Latin-1)."""


@dataclass
class Response:
    """A complete response."""

    status: int
    headers: Headers = field(default_factory=list)
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """Return the first value of a header."""
        return first(self.headers, name)

    def set(self, name: str, value: str) -> None:
        """Replace a header."""
        self.headers = [pair for pair in self.headers if pair[0] != name]
        self.headers.append((name, value))


@dataclass(frozen=True)
class Request:
    """A request whose body was read.

    Attributes:
        method: the method.
        template: the template of the route, such as ``/orders/{id}/notes``.
        path: the path as it was sent.
        query: the query as it was sent, without ``?``.
        headers: pairs of a name in lower case and a value, as Latin-1.
        body: the body; ``None`` if it is longer than the limit.
        is_complete: whether the body has the announced length.
        joins_headers: whether the server joins several lines of a header with commas, as those of
            WSGI do.
    """

    method: str
    template: str
    path: bytes
    query: bytes
    headers: Sequence[tuple[str, str]]
    body: bytes | None
    is_complete: bool = True
    joins_headers: bool = False

    def all(self, name: str) -> list[str]:
        """Return all values of a header."""
        return [value for known, value in self.headers if known == name]


def first(headers: Sequence[tuple[str, str]], name: str) -> str | None:
    """Return the first value of a header."""
    return next((value for known, value in headers if known == name), None)
