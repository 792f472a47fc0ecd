"""How a client retries: which attempts may be repeated, when, and how much load that may add.

Nothing in this module reads a clock, draws a random number or waits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

RETRY = 1_000
"""A retry, in the unit of budgets."""
RETRY_AFTER_MAX = 24 * 3600.0
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which another attempt can have another outcome."""
_IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "QUERY"})
_CODE_BYTES_MAX = 128
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_DAY = f"(?P<weekday>{'|'.join(_DAYS)})"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DATES = (
    re.compile(rf"{_DAY}, (?P<day>\d\d) {_MONTH} (?P<year>\d{{4}}) {_TIME} GMT", re.ASCII),
    re.compile(
        r"(?P<weekday>(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day), (?P<day>\d\d)-"
        rf"{_MONTH}-(?P<year>\d\d) {_TIME} GMT",
        re.ASCII,
    ),
    re.compile(rf"{_DAY} {_MONTH} (?P<day>[ \d]\d) {_TIME} (?P<year>\d{{4}})", re.ASCII),
)


@dataclass(frozen=True)
class Backoff:
    """How often and how fast one operation is attempted, in seconds.

    The wait before retry ``n`` is random between zero and ``min(cap, base * 2**(n-1))``.
    """

    base: float = 0.1
    cap: float = 2.0
    attempts_max: int = 5
    total: float = 10.0

    def ceiling(self, attempt: int) -> float:
        """Return the longest wait after the failed attempt of this number, from 1."""
        return float(min(self.cap, self.base * 2 ** min(attempt - 1, 31)))


@dataclass(frozen=True)
class Budget:
    """Limit of the load that all retries to one destination add, in thousandths of a retry."""

    max: int = 5 * RETRY
    initial: int = 5 * RETRY
    reserve: int = 0
    per_request: int = RETRY // 10
    per_second: int = RETRY // 2
    per_success: int = 0
    per_retry: int = RETRY
    per_failure: int = 0

    @classmethod
    def strict(cls) -> Budget:
        """One retry per second and a tenth of the requests, without a reserve."""
        return cls(max=RETRY, initial=RETRY, per_second=RETRY)

    @classmethod
    def unbounded(cls) -> Budget:
        """No limit, for a program that performs one operation and exits."""
        return cls(0, 0, 0, 0, 0, 0, 0, 0)


class Balance:
    """The budget that is left for one destination. Times are in milliseconds."""

    def __init__(self, budget: Budget, now_ms: int) -> None:
        self.budget = budget
        self.amount = min(budget.initial, budget.max)
        self._rest = 0
        self._seen_ms = now_ms

    def first(self, now_ms: int) -> None:
        """Add for a first attempt."""
        self._pass(now_ms)
        self._add(self.budget.per_request)

    def succeeded(self, now_ms: int) -> None:
        """Add for a success."""
        self._pass(now_ms)
        self._add(self.budget.per_success)

    def failed(self, now_ms: int) -> None:
        """Subtract for a failure."""
        self._pass(now_ms)
        self.amount = max(0, self.amount - self.budget.per_failure)

    def allows(self, now_ms: int) -> bool:
        """Whether a retry may be sent."""
        self._pass(now_ms)
        return self.amount >= self.budget.reserve + self.budget.per_retry

    def take(self, now_ms: int) -> bool:
        """Subtract a retry, if it may be sent."""
        allowed = self.allows(now_ms)
        if allowed:
            self.amount -= self.budget.per_retry
        return allowed

    def _pass(self, now_ms: int) -> None:
        elapsed, self._seen_ms = max(0, now_ms - self._seen_ms), now_ms
        earned, self._rest = divmod(elapsed * self.budget.per_second + self._rest, 1_000)
        self._add(earned)

    def _add(self, amount: int) -> None:
        self.amount = min(self.amount + amount, self.budget.max)
        if self.amount == self.budget.max:
            self._rest = 0


@dataclass(frozen=True)
class Policy:
    """How a client retries.

    Attributes:
        backoff: how often and how fast one operation is attempted.
        budget: the limit of the load that all retries to one destination add.
        attempt_max: time limit of one attempt in seconds, beside the rest of the time.
    """

    backoff: Backoff = field(default_factory=Backoff)
    budget: Budget = field(default_factory=Budget)
    attempt_max: float | None = None


@dataclass(frozen=True)
class Seen:
    """The outcome of an attempt.

    Attributes:
        kind: ``response``, ``not_sent``, ``lost`` or ``timed_out``.
        status: the status of the response.
        retry_after: the wait in seconds that the response asks for.
        is_stored: whether every attempt receives this response, because it is stored.
        code: the code of the problem.
    """

    kind: str
    status: int = 0
    retry_after: float | None = None
    is_stored: bool = False
    code: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether another attempt would have the same outcome."""
        if self.kind != "response":
            return False
        if self.code is not None and self.code.split(".", 1)[0] == "INTERNAL":
            return True
        passes = self.status in PASSING or (self.status == 409 and self.retry_after is not None)
        return self.is_stored or not passes


@dataclass(frozen=True)
class Decision:
    """What follows an attempt.

    Attributes:
        wait: the wait before the next one, in seconds; ``None`` if there is none.
        stop: why there is no further attempt: ``answered``, ``unrepeatable``, ``retry_after``,
            ``late``, ``exhausted`` or ``budget``.
    """

    wait: float | None = None
    stop: str | None = None


def decide(
    backoff: Backoff,
    seen: Seen,
    *,
    is_repeatable: bool,
    attempt: int,
    left: float,
    random: float,
    allows: Callable[[], bool],
) -> Decision:
    """Decide what follows the attempt of this number, from 1, with ``left`` seconds left."""
    if seen.is_final:
        return Decision(stop="answered")
    if not is_repeatable and seen.kind != "not_sent":
        return Decision(stop="unrepeatable")
    asked = seen.retry_after or 0.0
    if asked and asked >= left:
        return Decision(stop="retry_after")
    if left <= 0:
        return Decision(stop="late")
    if attempt >= backoff.attempts_max:
        return Decision(stop="exhausted")
    if not allows():
        return Decision(stop="budget")
    room = max(0.0, left - asked - 1e-9)
    return Decision(wait=asked + min(backoff.ceiling(attempt), room) * random)


def says_stored(status: str | None) -> bool:
    """Whether ``Idempotency-Status`` says that the response is stored. Parameters are ignored."""
    return (status or "").split(";", 1)[0].strip() in {"stored", "replayed"}


def seen_response(
    status: int, headers: Callable[[str], str | None], body: bytes, now: float
) -> Seen:
    """Read a response. ``headers`` returns the first value of a header."""
    stored = says_stored(headers("idempotency-status"))
    return Seen(
        "response",
        status,
        retry_after(headers("retry-after"), headers("date"), now),
        stored,
        problem_code(headers("content-type"), body),
    )


def retry_after(asked: str | None, date: str | None, now: float) -> float | None:
    """Return the wait in seconds that a response asks for, at most a day.

    A date is compared with the ``Date`` of the same response, because clocks differ.
    """
    asked = (asked or "").strip(" \t")
    if not asked:
        return None
    if asked.isascii() and asked.isdigit():
        return min(float(asked[-400:]) if len(asked) <= 400 else RETRY_AFTER_MAX, RETRY_AFTER_MAX)
    moment = _moment(asked)
    if moment is None:
        return None
    base = _moment((date or "").strip(" \t"))
    return min(max(0.0, moment - (now if base is None else base)), RETRY_AFTER_MAX)


def problem_code(content_type: str | None, body: bytes) -> str | None:
    """Return the ``code`` of a problem document."""
    kind = (content_type or "").split(";", 1)[0].strip().lower()
    if kind != "application/problem+json":
        return None
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    code = document.get("code") if isinstance(document, dict) else None
    if not isinstance(code, str) or len(code.encode("utf-8", "surrogatepass")) > _CODE_BYTES_MAX:
        return None
    return code


def is_repeatable(method: str, has_key: bool) -> bool:
    """Whether a request may be sent again after any byte of it was sent."""
    return has_key or method in _IDEMPOTENT


def wants_key(method: str) -> bool:
    """Whether the client generates a key for a request without one."""
    return method in {"POST", "PATCH"}


def _moment(text: str) -> float | None:
    """Parse a date of HTTP: the usual form, or one of the two obsolete ones."""
    for pattern in _DATES:
        found = pattern.fullmatch(text)
        if found:
            return _checked(found.groupdict())
    return None


def _checked(parts: dict[str, str]) -> float | None:
    year = int(parts["year"])
    if len(parts["year"]) == 2:
        year += 2000 if year < 70 else 1900
    try:
        moment = datetime(
            year,
            _MONTHS.index(parts["month"]) + 1,
            int(parts["day"]),
            int(parts["hour"]),
            int(parts["minute"]),
            int(parts["second"]),
            tzinfo=timezone.utc,
        )
    except ValueError:
        return None
    if _DAYS[moment.weekday()] != parts["weekday"][:3]:
        return None
    return moment.timestamp()
