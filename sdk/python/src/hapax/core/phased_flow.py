"""The steps of a request in phases: enter the key, run the handler, store the response.

A run that does not complete gives the key back, so that a retry continues at once. If an owner has
lost its key, its own response is dropped, and its client receives that of the new owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from . import codes, sql
from .driver import Driver, Failure, Kind, within
from .flow import PAUSE_FIRST, PAUSE_MAX, Flow, require_version, too_large
from .limits import COMMIT_RECOVERY, RESPONSE_BYTES_MAX, RETRY_AFTER
from .message import Headers, Request, Response
from .operation import Operation, Parsed
from .owner import PROCESS, Owned, Owner, ended_by_handler, lost_commit
from .phases import AsyncPhases, BasePhases, Phases
from .problem import Problem
from .stored import OWN_HEADERS, Disposition, disposition, split_headers

_GIVE_BACK = "give back"
_STAYS = "what this request has committed is kept"
_KEPT = f"{_STAYS}; "


class PhasedFlow(Flow):
    """One request of an operation in phases; see :class:`hapax.core.flow.Flow`.

    The handler runs with :attr:`phases`.
    """

    phases: BasePhases

    def __init__(
        self,
        driver: Driver,
        operation: Operation,
        request: Request,
        tenant: Callable[[], str],
    ) -> None:
        # A key is always required.
        super().__init__(driver, replace(operation, key="required"), request, tenant)
        self.outcome = "unstored"
        """How the request has ended: ``stored``, ``replayed`` or ``unstored``."""
        self._owner: Owner | None = None

    @property
    def given(self) -> Any:
        """What the handler receives."""
        return self.phases

    async def _begin(self) -> Response | None:
        entered = await self._enter()
        if isinstance(entered, Response):
            return entered
        owner, point, data = entered
        kind = AsyncPhases if self.driver.is_async else Phases
        self.phases = kind(owner, point, data)
        self._owner = owner
        owner.keep()
        return None

    async def _enter(self) -> Response | tuple[Owner, str | None, object]:
        """Enter until the outcome is known or the wait is over."""
        until = time.monotonic() + self.operation.wait
        if self._parsed.deadline is not None:
            until = min(until, self._parsed.deadline)
        pause = PAUSE_FIRST
        while True:
            asked = time.monotonic()
            row = await self._enter_once(self._parsed)
            if row[0] in {"entered", "resumed"}:
                return self._owned(row, asked)
            if row[0] != "in_progress" or time.monotonic() >= until:
                return self._taken_as(row[:5])
            await self.driver.sleep(pause * (0.5 + random.random() / 2))
            pause = min(pause * 2, PAUSE_MAX)

    async def _enter_once(self, parsed: Parsed) -> sql.Row:
        rules = self.operation.rules
        retention = max(self.operation.retention, rules.retention_min)
        on_expired = "gone" if rules.refuses_expired else self.operation.on_expired
        unit = await self.driver.begin()
        try:
            await require_version(self.driver, unit, self.operation.schema)
            terms = (self.operation.lease, retention, on_expired, PROCESS)
            values = (*self._scope(), parsed.fingerprint, *terms)
            row = await unit.fetch(self._call(sql.ENTER), *values)
        except BaseException:
            await unit.rollback()
            raise
        await unit.commit()
        return row

    def _owned(self, row: sql.Row, asked: float) -> tuple[Owner, str | None, object]:
        *_, epoch, point, data, entered = row
        if not isinstance(epoch, int) or not isinstance(entered, int):
            raise TypeError("hapax.enter returned no epoch or no time of the entry")
        tenant, name, key = self._scope()
        owned = Owned((tenant, name, key or ""), epoch, entered, row[0] == "resumed")
        owner = Owner(self.driver, self.operation.schema, owned, self.operation.lease, asked)
        return owner, str(point) if point is not None else None, _parsed_data(data)

    def _taken_as(self, row: sql.Row) -> Response:
        if row[0] == "replay":
            self.outcome = "replayed"
        return self._taken(row)

    async def finish(self, response: Response) -> Response:
        """Store what the handler has responded, or let the key go."""
        response.headers = [pair for pair in response.headers if pair[0] not in OWN_HEADERS]
        if len(response.body) > RESPONSE_BYTES_MAX:
            return await self.refuse(too_large())
        return await self._end(response)

    async def fail(self, error: BaseException) -> Response:
        """End after the handler has raised, and return the response."""
        if isinstance(error, Problem):
            return await self._respond(error)
        failure = self.driver.failure(error)
        if failure is not None:
            self._log("the phase was rolled back", error)
            return await self.refuse(_unfinished(failure))
        detail = f"{_KEPT}a retry continues from there"
        return await self._respond(Problem(codes.TRANSIENT, detail))

    async def refuse(self, problem: Problem) -> Response:
        """Give the key back, and return a problem that is not stored."""
        owner = self._taken_owner()
        await self._drop_last()
        await self._let_go(owner, _GIVE_BACK)
        if owner.is_fenced:
            return await self._of_new_owner()
        # Of a response that cannot be stored. The phases before it stay.
        detail = problem.detail.replace("nothing was changed", _STAYS)
        return self._problem(Problem(problem.code, detail, retry_after=problem.retry_after))

    async def abandon(self) -> None:
        """Let the key go if the request has not ended, for example because it was cancelled."""
        if self._owner is not None:
            owner = self._taken_owner()
            await self._drop_last()
            is_untouched = self.phases._is_untouched()
            await self._let_go(owner, Disposition.RELEASE if is_untouched else _GIVE_BACK)

    async def _respond(self, problem: Problem) -> Response:
        kept = {Disposition.WITH_EFFECT, Disposition.WITHOUT_EFFECT}
        is_stored = self._verdict_of(problem.status) in kept
        return await self.finish(problem.response(self.request_id, stored=is_stored))

    async def _end(self, response: Response) -> Response:
        owner = self._taken_owner()
        if owner.lost is not None:
            self._log("the result of the commit of a phase is lost", owner.lost)
            response = lost_commit().response(self.request_id)
        verdict = _GIVE_BACK if owner.lost is not None else self._verdict_of(response.status)
        if owner.is_fenced or verdict is not Disposition.WITH_EFFECT:
            await self._drop_last()
        if owner.is_fenced:
            return await self._of_new_owner()
        if verdict in {_GIVE_BACK, Disposition.RELEASE}:
            await self._let_go(owner, verdict)
            return await self._of_new_owner() if owner.is_fenced else self._unstored(response)
        if response.status >= 400:
            response.headers = [pair for pair in response.headers if pair[0] != "retry-after"]
        kept, exchange = split_headers(response.headers, self.operation.per_request)
        stored = Response(response.status, kept, response.body)
        try:
            await self._store(owner, stored)
        except Exception as error:
            return await self._unfinished_end(owner, error, stored, exchange)
        return self._stored(stored, exchange)

    async def _store(self, owner: Owner, stored: Response) -> None:
        last, self.phases._last_phase = self.phases._last_phase, None
        if last is None:
            await self._complete(owner, stored)
        else:
            unit, tx = last
            await owner.commit_last(unit, stored, json.dumps(tx._close()))

    async def _complete(self, owner: Owner, stored: Response) -> None:
        """Store a response in a separate commit, again while the key is held if the store fails.

        Only this process knows the outcome of the request.
        """
        pause = 0.05
        while True:
            try:
                await owner.finish(stored)
            except Exception as error:
                failure = self.driver.failure(error)
                is_passing = failure is not None and failure.kind is not Kind.STATEMENT
                if not is_passing or not owner.is_held():
                    raise
            else:
                return
            await self.driver.sleep(pause * (0.5 + random.random() / 2))
            pause = min(pause * 2, 1.0)

    async def _unfinished_end(
        self, owner: Owner, error: Exception, stored: Response, exchange: Headers
    ) -> Response:
        """Let the key decide: the response was not stored, or the result of the commit was lost."""
        failure = self.driver.failure(error)
        is_known = failure is not None and not failure.ends_session
        if failure is None and not owner.is_fenced and owner.lost is None:
            if isinstance(error, Problem):
                await self._let_go(owner, _GIVE_BACK)
                return self._problem(error)
            raise error
        self._log("the response could not be stored", error)
        row = None if is_known else await self._look_up()
        if row is not None and row[0] == "replay":
            found = sql.stored_response(*row[1:4])
            if found == stored:
                return self._stored(stored, exchange)
            return self._taken_as(row)
        if owner.is_fenced:
            return await self._of_new_owner()
        await self._let_go(owner, _GIVE_BACK)
        return self._problem(_unfinished(failure))

    def _stored(self, stored: Response, exchange: Headers) -> Response:
        self.outcome = "stored"
        return self._first(stored, exchange)

    async def _of_new_owner(self) -> Response:
        """Wait for the response of the owner that has taken the key over."""
        until, pause = time.monotonic() + self.operation.wait, PAUSE_FIRST
        while True:
            row = await self._look_up()
            if row is not None and row[0] not in {"open", "in_progress"}:
                return self._taken_as(row)
            if time.monotonic() >= until:
                return self._taken(("in_progress", None, None, None, None))
            await self.driver.sleep(pause * (0.5 + random.random() / 2))
            pause = min(pause * 2, PAUSE_MAX)

    async def _look_up(self) -> sql.Row | None:
        """Return the state of the key, or ``None`` if the store does not answer."""
        try:
            unit, row = await self._claim_once(self._parsed)
        except Exception as error:
            if self.driver.failure(error) is None:
                raise
            return None
        if row[0] == "open":
            await unit.rollback()
        return row

    def _verdict_of(self, status: int) -> Disposition | str:
        """Decide by the status what is stored.

        An error is never stored while the outcome of a call is unknown: a retry would receive it
        although the provider may have executed the call.
        """
        phases, rules = self.phases, self.operation.rules
        if status >= 400 and phases._unknown:
            return _GIVE_BACK
        is_untouched = phases._is_untouched()
        # After a phase a refusal is stored under every profile, because the phase stays.
        kept = disposition(
            status, store_failures=False, profile=replace(rules, stores_successes_only=False)
        )
        if self.is_released and is_untouched:
            return Disposition.RELEASE
        if kept is Disposition.WITHOUT_EFFECT and rules.stores_successes_only and is_untouched:
            return Disposition.RELEASE
        if kept is not Disposition.RELEASE:
            return kept
        is_mistake = status < 500 and is_untouched
        return Disposition.RELEASE if phases._came_to_nothing or is_mistake else _GIVE_BACK

    async def _let_go(self, owner: Owner, verdict: Disposition | str) -> None:
        """Release the key, or end its lease. If this fails or takes long, the lease ends."""
        end = owner.release() if verdict is Disposition.RELEASE else owner.give_back()
        try:
            await within(COMMIT_RECOVERY, self.driver, end)
        except asyncio.TimeoutError as error:
            self._log("the key was not let go in time", error)
        except Exception as error:
            if self.driver.failure(error) is None and not owner.is_fenced:
                raise

    def _taken_owner(self) -> Owner:
        owner, self._owner = self._owner, None
        if owner is None:
            raise RuntimeError("the request has ended")
        owner.settle()
        self.phases._end()
        return owner

    async def _drop_last(self) -> None:
        last, self.phases._last_phase = self.phases._last_phase, None
        if last is not None:
            unit, tx = last
            tx._close()
            with contextlib.suppress(Exception):
                await unit.rollback()


def _unfinished(failure: Failure | None) -> Problem:
    if failure is not None and failure.is_outside:
        return ended_by_handler()
    if failure is not None and failure.kind is Kind.STATEMENT:
        return Problem(codes.TRANSIENT, f"{_KEPT}a retry continues from there")
    detail = "the store is not available now; a retry continues where this request stopped"
    return Problem(codes.UNAVAILABLE, detail, retry_after=RETRY_AFTER)


def _parsed_data(data: object) -> object:
    return json.loads(data) if isinstance(data, str) else None
