"""What a caller says about one operation, beside the request itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Intent:
    """What the caller says about its next request.

    Attributes:
        key: the key. Default: a new UUID for each POST and PATCH.
        name: distinguishes equal requests in the journal.
        keyless: send no key. A POST is then not repeated after any byte of it was sent.
        again: discard an unfinished run from the journal and send the request under a new key.
            Find out first whether that run had an effect.
    """

    key: str | None = None
    name: str | None = None
    keyless: bool = False
    again: bool = False


_current: ContextVar[Intent] = ContextVar("hapax_intent", default=Intent())  # noqa: B039 - frozen


@contextmanager
def intent(
    *, key: str | None = None, name: str | None = None, keyless: bool = False, again: bool = False
) -> Iterator[None]:
    """Say something about the requests in this block; see :class:`Intent`."""
    token = _current.set(Intent(key, name, keyless, again))
    try:
        yield
    finally:
        _current.reset(token)


def current() -> Intent:
    """Return what was said about the next request."""
    return _current.get()
