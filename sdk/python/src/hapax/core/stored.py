"""What is stored under a key: which responses by their status, and which of their headers."""

from __future__ import annotations

from enum import Enum

from .message import Headers
from .profile import Profile

OWN_HEADERS = frozenset({"idempotency-key", "idempotency-status", "idempotent-replayed"})
"""Response headers that only the package sets. Those of a handler are dropped."""
PER_EXCHANGE = OWN_HEADERS | {
    "set-cookie",
    "date",
    "server",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "upgrade",
    "x-request-id",
    "hapax-encrypted-under",
}
"""Headers that belong to one exchange and are never stored."""
REBUILT = frozenset({"content-length", "transfer-encoding"})
"""Headers that are computed from the stored body."""
REFUSALS = frozenset({402, 404, 409, 410, 422})
"""Statuses of refusals: the response is stored, and the effect is rolled back."""


class Disposition(Enum):
    """What happens to the key and to the effect when a handler has responded."""

    WITH_EFFECT = "with_effect"
    """The response is stored, in one commit with the effect."""
    WITHOUT_EFFECT = "without_effect"
    """The response is stored, and the effect is rolled back."""
    RELEASE = "release"
    """Nothing is stored, the effect is rolled back, and the key is free."""


def disposition(status: int, *, store_failures: bool, profile: Profile) -> Disposition:
    """Return what happens to a response with this status."""
    if 200 <= status < 400:
        return Disposition.WITH_EFFECT
    is_stored = status in REFUSALS
    if status >= 500 and store_failures:
        is_stored = not profile.releases_failures
    if is_stored and not profile.stores_successes_only:
        return Disposition.WITHOUT_EFFECT
    return Disposition.RELEASE


def split_headers(headers: Headers, per_request: frozenset[str]) -> tuple[Headers, Headers]:
    """Split headers into those that are stored and those of this exchange only.

    Args:
        headers: the headers of the response, with names in lower case.
        per_request: further names that are not stored, in lower case.
    """
    named = {
        name.strip().lower()
        for header, value in headers
        if header == "connection"
        for name in value.split(",")
    }
    apart = PER_EXCHANGE | per_request | named
    kept = [pair for pair in headers if pair[0] not in apart | REBUILT]
    exchange = [
        pair for pair in headers if pair[0] in apart - OWN_HEADERS and pair[0] not in REBUILT
    ]
    return kept, exchange
