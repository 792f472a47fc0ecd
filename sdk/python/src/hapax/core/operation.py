"""Settings of an operation, and what is read from a request before its key is claimed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from . import codes, key
from .fingerprint import FingerprintMode, fingerprint
from .limits import BODY_BYTES_MAX, LEASE, LEASE_MAX, RETENTION, WAIT
from .message import Request, first
from .problem import Problem
from .profile import PROFILES, Profile

PROTECTED_METHODS = frozenset({"POST", "PATCH", "PUT", "DELETE"})
"""Methods that claim a key. All others run in a transaction without one."""
_TIMEOUT_DIGITS_MAX = 12


@dataclass(frozen=True)
class Operation:
    """Settings of one operation.

    Attributes:
        name: the operation of the key. Default: the method and the route template.
        key: ``required``, or ``optional``: a request without a key then runs unprotected.
        retention: how long a response is kept, in seconds.
        wait: how long a duplicate waits for the first request, in seconds.
        on_expired: what an expired key does: ``new`` runs again, ``gone`` is refused with 410.
        store_failures: whether a response with a status from 500 on is stored.
        fingerprint: how bodies are compared: ``raw``, ``json`` or ``json-semantic``. Default: that
            of the profile.
        profile: the protocol of the clients.
        service: a prefix of the operation, for services that share a database and have routes
            with the same template.
        per_request: names of response headers that are not stored.
        body_bytes_max: maximum length of a request body in bytes.
        lease: how long a key in phases belongs to a process that has died, in seconds. A process
            that is alive renews the lease.
        schema: the schema whose functions are called: ``hapax``, or ``hapax_api`` for a role
            without privileges on the tables.
    """

    name: str | None = None
    key: str | None = None
    retention: float = RETENTION
    wait: float = WAIT
    on_expired: str = "new"
    store_failures: bool = False
    fingerprint: str | None = None
    profile: str = "hapax"
    service: str | None = None
    per_request: frozenset[str] = field(default_factory=frozenset)
    body_bytes_max: int = BODY_BYTES_MAX
    lease: float = LEASE
    schema: str = "hapax"

    def __post_init__(self) -> None:
        if self.key not in {None, "required", "optional"}:
            raise ValueError(f'key: expected "required" or "optional", got {self.key!r}')
        if self.on_expired not in {"new", "gone"}:
            raise ValueError(f'on_expired: expected "new" or "gone", got {self.on_expired!r}')
        if self.schema not in {"hapax", "hapax_api"}:
            raise ValueError(f'schema: expected "hapax" or "hapax_api", got {self.schema!r}')
        if not 0 < self.lease <= LEASE_MAX:
            raise ValueError(f"lease: expected 0 to {LEASE_MAX:.0f} s, got {self.lease!r}")
        if self.profile not in PROFILES:
            names = ", ".join(PROFILES)
            raise ValueError(f"profile: expected one of {names}, got {self.profile!r}")
        if self.fingerprint is not None:
            FingerprintMode(self.fingerprint)

    @property
    def rules(self) -> Profile:
        """The rules of the profile."""
        return PROFILES[self.profile]

    @property
    def mode(self) -> FingerprintMode:
        """How bodies are compared."""
        if self.fingerprint is None:
            return self.rules.fingerprint
        return FingerprintMode(self.fingerprint)

    def is_key_required(self, method: str) -> bool:
        """Whether a request without a key is refused."""
        if self.rules.requires_key and method == "POST":
            return True
        if self.key is not None:
            return self.key == "required"
        return not self.rules.key_optional

    def name_for(self, request: Request) -> str:
        """Return the operation of the key."""
        name = self.name or f"{request.method} {request.template}"
        return f"{self.service}:{name}" if self.service else name


@dataclass(frozen=True)
class Parsed:
    """What a request says about its key.

    Attributes:
        name: the operation of the key.
        key: the key; ``None`` if the request runs without one.
        fingerprint: the fingerprint; empty without a key.
        deadline: when the client stops waiting, by :func:`time.monotonic`.
    """

    name: str
    key: str | None
    fingerprint: bytes
    deadline: float | None


def sent_key(operation: Operation, request: Request) -> str | None:
    """Parse the key of a request.

    Raises:
        Problem: the header is not valid, or it is missing and required.
    """
    if request.method not in PROTECTED_METHODS:
        return None
    values = request.all("idempotency-key")
    if not values:
        if operation.is_key_required(request.method):
            detail = "generate a key for each intent, and send the same key with every retry"
            problem = Problem(codes.KEY_MISSING, detail)
            problem.shown_as = operation.rules.codes.get(codes.KEY_MISSING.name)
            raise problem
        return None
    if len(values) > 1:
        raise Problem(codes.KEY_INVALID, "the header occurs more than once")
    if request.joins_headers and "," in values[0] and not values[0].lstrip().startswith('"'):
        detail = "the header occurs more than once, or its key has a comma and no quotes"
        raise Problem(codes.KEY_INVALID, detail)
    try:
        parsed = key.parse_header(values[0])
    except key.KeyInvalidError as error:
        raise Problem(codes.KEY_INVALID, str(error)) from None
    if parsed.startswith(key.DERIVED_PREFIX):
        detail = (
            'keys that begin with "derived:" are reserved for the service; send no key, or a key '
            "that you have generated"
        )
        raise Problem(codes.KEY_INVALID, detail)
    if operation.rules.needs_uuid_v7 and not key.is_uuid_v7(parsed):
        detail = "the key must be a UUID of version 7, with hyphens and without braces"
        raise Problem(codes.KEY_INVALID, detail)
    return parsed


def parse(operation: Operation, request: Request, sent: str | None) -> Parsed:
    """Parse the rest of a request, whose key is ``sent``.

    Raises:
        Problem: the request is refused before its key is claimed.
    """
    deadline = _deadline(request)
    name = operation.name_for(request)
    if request.body is None:
        detail = f"this operation takes at most {operation.body_bytes_max} bytes"
        raise Problem(codes.BODY_TOO_LARGE, detail)
    if not request.is_complete:
        raise Problem(codes.BODY_INCOMPLETE)
    if sent is None:
        return Parsed(name, None, b"", deadline)
    hashed = fingerprint(
        operation.mode, name, request.path, request.query, request.headers, request.body
    )
    return Parsed(name, sent, hashed, deadline)


def _deadline(request: Request) -> float | None:
    if first(request.headers, "x-request-timeout") is None:
        return None
    values = request.all("x-request-timeout")
    text = values[0]
    if len(values) > 1 or not (
        text.isascii() and text.isdigit() and len(text) <= _TIMEOUT_DIGITS_MAX
    ):
        detail = "expected one whole number of milliseconds"
        raise Problem(codes.REQUEST_TIMEOUT_INVALID, detail)
    return time.monotonic() + int(text) / 1000
