"""The steps of an operation: record the key, send, evaluate, wait, send again, remove the key.

The same code runs for coroutines and for functions; only the exchange and the wait differ.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

from hapax.core.key import header_value, parse_header

from .intent import Intent
from .journal import Begun, Entry, Journal
from .policy import (
    Balance,
    Policy,
    Seen,
    decide,
    is_repeatable,
    seen_response,
    wants_key,
)

RESUME_WITHIN = 24 * 3600.0
RESPONSE_BYTES_MAX = 16 * 1024 * 1024
BUDGETS = 1_024
_MISMATCHES = frozenset(
    {
        "CONFLICT.idempotency.payload_mismatch",
        "idempotency_conflict",
        "IDEMPOTENCY_CONFLICT",
    }
)


class Stopped(Enum):
    """Why there was no further attempt."""

    ANSWERED = "answered"
    """The response is final."""
    UNREPEATABLE = "unrepeatable"
    """The receiver may have the request and could not recognize the next one as the same."""
    RETRY_AFTER = "retry_after"
    """The receiver asks for a wait that ends after the deadline."""
    LATE = "late"
    """The time limit was reached."""
    EXHAUSTED = "exhausted"
    """The maximum number of attempts was reached."""
    BUDGET = "budget"
    """The retry budget of the destination is exhausted."""


@dataclass(frozen=True)
class Attempt:
    """One attempt.

    Attributes:
        number: from 1.
        delay: the wait before it, in seconds.
        status: the status of the response; ``None`` if there was none.
        code: the code of the problem.
        notes: the error, if there was no response.
    """

    number: int
    delay: float
    status: int | None
    code: str | None
    notes: str


@dataclass
class Outcome:
    """What is known of an operation, beside its response.

    Attributes:
        key: the key under which it was sent.
        is_resumed: whether, according to the journal, an earlier run had started it.
        stopped: why there was no further attempt.
        retry_after: the wait in seconds that the last response asks for.
        attempts: all attempts, in order.
    """

    key: str | None = None
    is_resumed: bool = False
    stopped: Stopped = Stopped.ANSWERED
    retry_after: float | None = None
    attempts: list[Attempt] = field(default_factory=list)


class SendError(RuntimeError):
    """The operation was not sent, or its response cannot be used."""


class StaleKeyError(SendError):
    """The service may have forgotten the key by now, and would execute the operation again.

    Find out what happened to the operation. Then send it in a block ``with intent(again=True)``.
    """

    def __init__(self, begun: Begun) -> None:
        since = (
            f"started {begun.age:.0f} s ago"
            if begun.age is not None
            else "started at a time that is in the future by this machine's clock"
        )
        super().__init__(
            f"the operation is unfinished under key {header_value(begun.key)}, {since}: the "
            "service may have deleted it by now"
        )
        self.key = begun.key


@dataclass(frozen=True)
class Sent:
    """A request without its key. Every attempt has the same bytes."""

    method: str
    url: str
    key: str | None
    body: bytes


@dataclass(frozen=True)
class Received:
    """A complete response."""

    status: int
    headers: Callable[[str], str | None]
    body: bytes


@dataclass(frozen=True)
class Missing:
    """An attempt without a response: ``not_sent``, ``lost`` or ``timed_out``, and its error."""

    kind: str
    error: Exception


Exchange = Callable[[dict[str, str], float], Awaitable["Received | Missing"]]


class Retries:
    """The retries of one client: its policy, its budgets and its journal.

    Share one object between all transports of a program.

    Args:
        policy: how the client retries.
        journal: where keys are recorded before they are sent.
        resume_within: maximum age in seconds of a key in the journal at which it is sent. It must
            not be longer than the service keeps keys.
        watch: is called with each attempt and the wait before the next one in seconds.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        journal: Journal | None = None,
        resume_within: float = RESUME_WITHIN,
        watch: Callable[[Attempt, float | None], None] | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self.journal = journal
        self.resume_within = resume_within
        self._watch = watch
        self._balances: dict[str, Balance] = {}
        self._lock = threading.Lock()

    async def send(
        self,
        sent: Sent,
        said: Intent,
        exchange: Exchange,
        sleep: Callable[[float], Awaitable[None]],
    ) -> tuple[Received | Missing, Outcome]:
        """Send a request with all its retries."""
        begun, entry = self._begin(sent, said)
        outcome = Outcome(begun.key, begun.is_resumed) if begun is not None else Outcome()
        total = self.policy.backoff.total
        if begun is not None and self.journal is not None and begun.age is not None:
            total = min(total, self.resume_within - begun.age)
        started, delay = time.monotonic(), 0.0
        account = _destination(sent.url)
        self._with(account, lambda balance, now: balance.first(now))
        repeatable = is_repeatable(sent.method, begun is not None)
        in_doubt = outcome.is_resumed
        while True:
            number = len(outcome.attempts) + 1
            left = max(0.001, total - (time.monotonic() - started))
            headers = _headers(outcome.key, number, left)
            came = await exchange(headers, min(self.policy.attempt_max or left, left))
            seen = _seen(came)
            attempt = _attempt(number, delay, came, seen)
            outcome.attempts.append(attempt)
            outcome.retry_after = seen.retry_after
            wait, stop = self._decide(account, seen, repeatable, number, started, total)
            self._tell(attempt, wait)
            if wait is not None:
                delay = wait
                in_doubt = in_doubt or seen.kind != "not_sent"
                await sleep(wait)
                stop = self._resume(account, started, total)
                if stop is None:
                    continue
            outcome.stopped = Stopped(stop)
            if entry is not None and outcome.key is not None and stop == "answered":
                self._strike_out(outcome.key, fate(seen, in_doubt=in_doubt))
            return came, outcome

    def _begin(self, sent: Sent, said: Intent) -> tuple[Begun | None, Entry | None]:
        """Generate the key, and record it if there is a journal."""
        given = said.key or (parse_header(sent.key) if sent.key is not None else None)
        if said.keyless or (given is None and not wants_key(sent.method)):
            return None, None
        fresh = given or str(uuid.uuid4())
        if self.journal is None:
            return Begun(fresh), None
        entry = Entry(sent.method, sent.url, sent.body, said.name)
        begun = self.journal.begin(entry, fresh)
        if begun.is_resumed and said.again:
            self.journal.finish(begun.key)
            begun = self.journal.begin(entry, fresh)
        if given is not None and given != begun.key:
            raise SendError(
                "according to the journal, the operation is unfinished under another key"
            )
        if begun.age is None or begun.age >= self.resume_within:
            raise StaleKeyError(begun)
        return begun, entry

    def _decide(
        self, account: str, seen: Seen, repeatable: bool, number: int, started: float, total: float
    ) -> tuple[float | None, str | None]:
        if seen.is_final:
            self._with(account, lambda balance, now: balance.succeeded(now))
        else:
            self._with(account, lambda balance, now: balance.failed(now))
        decision = decide(
            self.policy.backoff,
            seen,
            is_repeatable=repeatable,
            attempt=number,
            left=total - (time.monotonic() - started),
            random=random.random(),
            allows=lambda: self._with(account, lambda balance, now: balance.allows(now)),
        )
        return decision.wait, decision.stop

    def _resume(self, account: str, started: float, total: float) -> str | None:
        """Decide after the wait whether the retry may be sent, and subtract it from the budget."""
        if time.monotonic() - started >= total:
            return "late"
        taken = self._with(account, lambda balance, now: balance.take(now))
        return None if taken else "budget"

    def _strike_out(self, key: str, known: str) -> None:
        if self.journal is None or known == "unknown":
            return
        if known == "known":
            self.journal.finish(key)
        else:
            self.journal.withdraw(key)

    def _with(self, account: str, act: Callable[[Balance, int], bool | None]) -> bool:
        now = time.time_ns() // 1_000_000
        with self._lock:
            if account not in self._balances and len(self._balances) >= BUDGETS:
                account = "others"
            balance = self._balances.setdefault(account, Balance(self.policy.budget, now))
            return bool(act(balance, now))

    def _tell(self, attempt: Attempt, wait: float | None) -> None:
        if self._watch is not None:
            self._watch(attempt, wait)


def fate(seen: Seen, *, in_doubt: bool) -> str:
    """Return what a final response means for its key: ``known``, ``nothing`` or ``unknown``."""
    if 200 <= seen.status < 300 or seen.is_stored or seen.code in _MISMATCHES:
        return "known"
    # A gateway has sent an earlier attempt, and does not know its outcome.
    is_unknown = seen.code == "CONFLICT.idempotency.outcome_unknown"
    if not in_doubt and not is_unknown and seen.status < 500:
        return "nothing"
    return "unknown"


def _seen(came: Received | Missing) -> Seen:
    if isinstance(came, Missing):
        return Seen(came.kind)
    return seen_response(came.status, came.headers, came.body, time.time())


def _attempt(number: int, delay: float, came: Received | Missing, seen: Seen) -> Attempt:
    notes = str(came.error)[:200] if isinstance(came, Missing) else ""
    return Attempt(number, delay, seen.status or None, seen.code, notes)


def _headers(key: str | None, number: int, left: float) -> dict[str, str]:
    headers = {
        "x-request-timeout": str(max(1, int(left * 1000))),
        "idempotency-attempt": str(number),
    }
    if key is not None:
        headers["idempotency-key"] = header_value(key)
    return headers


def _destination(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{parts.hostname}:{port}"
