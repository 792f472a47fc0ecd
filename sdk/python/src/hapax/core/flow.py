"""The steps of one request: claim the key, run the handler, store the response, commit.

A response is returned only after the commit. If the result of the commit is lost, the key decides:
the same claim is made again, and finds either the stored response or a free key.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable
from typing import Any

from . import codes, sql
from .driver import Driver, Failure, Kind, Unit
from .errors import ContractError
from .key import header_value, short_hash
from .limits import COMMIT_RECOVERY, RESPONSE_BYTES_MAX, RETRY_AFTER
from .message import Headers, Request, Response, first
from .operation import PROTECTED_METHODS, Operation, Parsed, parse, sent_key
from .problem import Problem, request_id
from .stored import OWN_HEADERS, Disposition, disposition, split_headers
from .tx import AsyncTx, BaseTx, Tx

log = logging.getLogger("hapax")

MISMATCH_DETAIL = (
    "the first request with this key had a different path, query, content type, body or condition "
    "(If-Match, If-None-Match, If-Unmodified-Since); use a new key for a different request"
)
PAUSE_FIRST = 0.005
PAUSE_MAX = 0.1


class Flow:
    """One request of an operation.

    Call :meth:`begin`. If it returns a response, send it. Otherwise run the handler with
    :attr:`tx`, and pass its response to :meth:`finish` or its exception to :meth:`fail`. Call
    :meth:`abandon` in any case at the end.
    """

    tx: BaseTx

    def __init__(
        self,
        driver: Driver,
        operation: Operation,
        request: Request,
        tenant: Callable[[], str],
    ) -> None:
        self.driver = driver
        self.operation = operation
        self.request = request
        self.tenant = tenant
        self.request_id = request_id(first(request.headers, "x-request-id"))
        self.is_released = False
        self._key: str | None = None
        self._unit: Unit | None = None

    @property
    def given(self) -> Any:
        """What the handler receives."""
        return self.tx

    async def begin(self) -> Response | None:
        """Claim the key. Return ``None`` if the handler has to run."""
        try:
            self._key = sent_key(self.operation, self.request)
            self._tenant = self.tenant()
            self._parsed = parse(self.operation, self.request, self._key)
        except Problem as problem:
            return self._problem(problem)
        return await self.enter()

    async def enter(self) -> Response | None:
        """Claim the key of a request that is parsed."""
        try:
            return await self._begin()
        except BaseException as error:
            await self._rollback()
            if self.driver.failure(error) is None and not isinstance(error, ContractError):
                raise
            self._log("the key cannot be claimed", error)
            detail = "the key cannot be claimed now; nothing was changed, try again"
            return self._problem(Problem(codes.UNAVAILABLE, detail, retry_after=RETRY_AFTER))

    async def finish(self, response: Response) -> Response:
        """Store and commit what the handler has responded. Return what is sent to the client."""
        unit = self._open()
        response.headers = [pair for pair in response.headers if pair[0] not in OWN_HEADERS]
        verdict = self._verdict(response)
        if verdict is Disposition.WITH_EFFECT and self._is_late():
            detail = "the time ran out before the commit; nothing was changed"
            return await self.refuse(Problem(codes.TIMEOUT, detail))
        if len(response.body) > RESPONSE_BYTES_MAX:
            return await self.refuse(too_large())
        if verdict is Disposition.RELEASE or (
            self._key is None and verdict is Disposition.WITHOUT_EFFECT
        ):
            await self._rollback()
            return self._unstored(response)
        try:
            events = await self._settle(unit, verdict)
        except Exception as error:
            await self._rollback()
            return self._failed(error)
        if response.status >= 400:
            response.headers = [pair for pair in response.headers if pair[0] != "retry-after"]
        kept, exchange = split_headers(response.headers, self.operation.per_request)
        stored = Response(response.status, kept, response.body)
        self._unit = None
        try:
            await self._commit(unit, stored, events)
        except Exception as error:
            return await self._recover(error, stored, exchange)
        return self._first(stored, exchange)

    def is_unexpected(self, error: BaseException) -> bool:
        """Whether an exception is an error of the program, which the framework reports too."""
        return not isinstance(error, Problem) and self.driver.failure(error) is None

    async def fail(self, error: BaseException) -> Response:
        """End after the handler has raised, and return the response.

        A problem is a response like any other. Errors of the database and of the program are
        converted to problems.
        """
        if isinstance(error, Problem):
            return await self._respond(error)
        failure = self.driver.failure(error)
        if failure is None:
            return await self._respond(Problem(codes.TRANSIENT, "nothing was changed; try again"))
        self._log("the work was rolled back", error)
        if failure.kind is Kind.STATEMENT:
            return await self._respond(problem_of(failure))
        # A failure of the store is not an outcome of the request.
        return await self.refuse(problem_of(failure))

    async def refuse(self, problem: Problem) -> Response:
        """Roll back and return a problem that is not stored."""
        await self._rollback()
        return self._problem(problem)

    async def abandon(self) -> None:
        """Roll back if the request has not ended."""
        await self._rollback()

    async def _respond(self, problem: Problem) -> Response:
        is_stored = self._key is not None and (
            self._verdict(Response(problem.status)) is not Disposition.RELEASE
        )
        return await self.finish(problem.response(self.request_id, stored=is_stored))

    async def _begin(self) -> Response | None:
        if self._key is None:
            unit = await self.driver.begin()
            self._unit = unit
            await require_version(self.driver, unit, self.operation.schema)
        else:
            claimed = await self._claim(self._parsed)
            if isinstance(claimed, Response):
                return claimed
            unit = self._unit = claimed
        kind = AsyncTx if self.driver.is_async else Tx
        self.tx = kind(unit, self._tenant, self._key)
        return None

    async def _claim(self, parsed: Parsed) -> Unit | Response:
        """Claim until the outcome is known or the wait is over, without a connection meanwhile."""
        until = time.monotonic() + self.operation.wait
        if parsed.deadline is not None:
            until = min(until, parsed.deadline)
        pause = PAUSE_FIRST
        while True:
            found = await self._claim_seen(parsed, is_last=time.monotonic() >= until)
            if found is not None:
                unit, row = found
                if row[0] == "open":
                    return unit
                if row[0] != "in_progress" or time.monotonic() >= until:
                    return self._taken(row)
            await self.driver.sleep(pause * (0.5 + random.random() / 2))
            pause = min(pause * 2, PAUSE_MAX)

    async def _claim_seen(self, parsed: Parsed, *, is_last: bool) -> tuple[Unit, sql.Row] | None:
        """Claim once. ``None``: the snapshot of the transaction is too old to see the response.

        It can be under REPEATABLE READ and SERIALIZABLE, and a new transaction sees it.
        """
        try:
            return await self._claim_once(parsed)
        except Exception as error:
            failure = self.driver.failure(error)
            if is_last or failure is None or failure.kind is not Kind.CONFLICT:
                raise
            return None

    async def _claim_once(self, parsed: Parsed) -> tuple[Unit, sql.Row]:
        """Claim once. The transaction is open if and only if the outcome is ``open``."""
        rules = self.operation.rules
        retention = max(self.operation.retention, rules.retention_min)
        on_expired = "gone" if rules.refuses_expired else self.operation.on_expired
        if not self.driver.contract_checked:
            unit = await self.driver.begin()
            try:
                await require_version(self.driver, unit, self.operation.schema)
            finally:
                await unit.rollback()
        unit, row = await self.driver.claim(
            self._call(sql.CLAIM), *self._scope(), parsed.fingerprint, retention, on_expired
        )
        if row[0] != "open":
            await unit.rollback()
        return unit, row

    async def _settle(self, unit: Unit, verdict: Disposition) -> str:
        """Write or discard the work of the handler. Return the events to store with it."""
        if verdict is Disposition.WITH_EFFECT:
            await unit.flush()
            return json.dumps(self.tx._events)
        await unit.discard()
        return "[]"

    async def _commit(self, unit: Unit, stored: Response, events: str) -> None:
        """Write the response and the events, and commit."""
        if self._key is not None:
            headers = sql.headers_json(stored.headers)
            values = (*self._scope(), stored.status, headers, stored.body, events)
            await unit.commit_with(self._call(sql.COMPLETE), *values)
        elif events != "[]":
            await unit.commit_with(self._call(sql.EMIT_MANY), events)
        else:
            await unit.commit_with(sql.IS_INTACT)

    async def _recover(self, error: Exception, stored: Response, exchange: Headers) -> Response:
        """Find out what became of a commit that has failed."""
        failure = self.driver.failure(error)
        if failure is None:
            raise error
        if not failure.ends_session:
            return self._failed(error)
        self._log("the result of the commit is lost", error)
        row = await self._lost_commit() if self._key is not None else None
        if row is not None and row[0] == "replay":
            found = sql.stored_response(*row[1:4])
            if found == stored:
                return self._first(stored, exchange)
            return self._replay(found)
        detail = "the result of the commit is not known yet; send the same request again"
        if row is not None and row[0] == "open":
            detail = "the store is not available now; try again"
        return self._problem(Problem(codes.UNAVAILABLE, detail, retry_after=RETRY_AFTER))

    async def _lost_commit(self) -> sql.Row | None:
        """Claim the key again until its state is known, for a limited time."""
        until, pause = time.monotonic() + COMMIT_RECOVERY, 0.02
        while True:
            try:
                unit, row = await self._claim_once(self._parsed)
                if row[0] == "open":
                    await unit.rollback()
                if row[0] != "in_progress":
                    return row
            except Exception as error:
                if self.driver.failure(error) is None:
                    raise
            if time.monotonic() >= until:
                return None
            await self.driver.sleep(pause)
            pause = min(pause * 2, 0.25)

    def _taken(self, row: sql.Row) -> Response:
        outcome, status, headers, body, retry_after_ms = row
        rules = self.operation.rules
        if outcome == "replay":
            return self._replay(sql.stored_response(status, headers, body))
        if outcome == "mismatch":
            problem = Problem(codes.PAYLOAD_MISMATCH, MISMATCH_DETAIL, status=rules.mismatch)
        elif outcome == "gone":
            problem = Problem(codes.EXPIRED, "its response is no longer kept; use a new key")
        else:
            wait = retry_after_ms / 1000 if isinstance(retry_after_ms, int) else RETRY_AFTER
            detail = "send the same request again after the time in Retry-After"
            problem = Problem(codes.IN_PROGRESS, detail, retry_after=wait)
            problem.says_retry_after = rules.says_retry_after
        problem.shown_as = rules.codes.get(problem.code.name)
        return self._problem(problem)

    def _verdict(self, response: Response) -> Disposition:
        if self.is_released:
            return Disposition.RELEASE
        return self.tx.disposition or disposition(
            response.status,
            store_failures=self.operation.store_failures,
            profile=self.operation.rules,
        )

    def _failed(self, error: BaseException) -> Response:
        """Return the problem for an error of the database. The work is rolled back."""
        failure = self.driver.failure(error)
        if failure is None:
            raise error
        self._log("the work was rolled back", error)
        return self._problem(problem_of(failure))

    def _first(self, stored: Response, exchange: Headers) -> Response:
        response = Response(stored.status, [*stored.headers, *exchange], stored.body)
        return self._marked(response, self._bypassed() if self._key is None else "stored")

    def _replay(self, found: Response) -> Response:
        if self.operation.rules.marks_replays:
            found.set("idempotent-replayed", "true")
        return self._marked(found, "replayed")

    def _unstored(self, response: Response) -> Response:
        return self._marked(response, self._bypassed() if self._key is None else None)

    def _bypassed(self) -> str | None:
        return "bypassed" if self.request.method in PROTECTED_METHODS else None

    def _problem(self, problem: Problem) -> Response:
        return self._marked(problem.response(self.request_id), None)

    def _marked(self, response: Response, status: str | None) -> Response:
        if self._key is not None:
            response.set("idempotency-key", header_value(self._key))
        if status is not None:
            response.set("idempotency-status", status)
        return response

    def _scope(self) -> tuple[str, str, str | None]:
        return self._tenant, self._parsed.name, self._key

    def _call(self, statement: str) -> str:
        return sql.in_schema(statement, self.operation.schema)

    def _is_late(self) -> bool:
        deadline = self._parsed.deadline
        return deadline is not None and time.monotonic() >= deadline

    def _open(self) -> Unit:
        if self._unit is None:
            raise RuntimeError("the transaction of this request has ended")
        return self._unit

    async def _rollback(self) -> None:
        unit, self._unit = self._unit, None
        if unit is not None:
            await unit.rollback()

    def _log(self, what: str, error: BaseException) -> None:
        # The message of a statement's error can repeat values of rows, so it is not logged.
        failure = self.driver.failure(error)
        is_statement = failure is not None and failure.kind is Kind.STATEMENT
        log.warning(
            "%s: %s (sqlstate %s, constraint %s, key #%s, request %s)",
            what,
            type(error).__name__ if is_statement else error,
            failure and failure.sqlstate,
            failure and failure.constraint,
            self._key and short_hash(self._key),
            self.request_id,
        )


def problem_of(failure: Failure) -> Problem:
    """Convert an error of the database into a problem."""
    if failure.kind is not Kind.STATEMENT:
        detail = "the store is not available now; try again"
        return Problem(codes.UNAVAILABLE, detail, retry_after=RETRY_AFTER)
    if failure.sqlstate == "HX002":
        detail = (
            "the handler has ended the transaction that holds the key; it must neither commit nor "
            "roll back"
        )
        return Problem(codes.INTERNAL, detail)
    if failure.sqlstate == "HX004":
        detail = "an event of this request could not be emitted; nothing was changed"
        return Problem(codes.INTERNAL, detail)
    detail = "nothing was changed; the same request would be refused again"
    return Problem(codes.STATEMENT, detail)


def too_large() -> Problem:
    """Return the problem for a response that is too long to be stored."""
    detail = f"a stored response has at most {RESPONSE_BYTES_MAX} bytes; nothing was changed"
    return Problem(codes.RESPONSE_TOO_LARGE, detail)


async def require_version(driver: Driver, unit: Unit, schema: str) -> None:
    """Refuse a database whose SQL contract is older than the package needs. It is asked once."""
    if driver.contract_checked:
        return
    (is_known,) = await unit.fetch(sql.in_schema(sql.HAS_VERSION, schema))
    version = (await unit.fetch(sql.in_schema(sql.VERSION, schema)))[0] if is_known else None
    if not isinstance(version, int) or version < sql.CONTRACT_VERSION:
        raise ContractError(version)
    driver.contract_checked = True
