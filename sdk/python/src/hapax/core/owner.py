"""The ownership of a key while its handler runs.

It has the lease, and commits phases, all of which fail once another owner has the key.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from . import codes, sql
from .driver import Driver, Unit, run_blocking
from .limits import RETRY_AFTER
from .message import Response
from .problem import Problem

log = logging.getLogger("hapax")

PROCESS = f"python {socket.gethostname()[:200]} {os.getpid()}"
"""The name of this process as the owner of keys."""


class FencedError(Problem):
    """Another owner has the key, so nothing more of this handler is committed."""

    def __init__(self, epoch: int) -> None:
        detail = (
            f"the key has another owner: the lease of epoch {epoch} was over, and another process "
            "has taken the request over; nothing of this phase was committed"
        )
        super().__init__(codes.IN_PROGRESS, detail, retry_after=RETRY_AFTER)


class EndedError(RuntimeError):
    """A phase or a call was used after its request has ended."""


@dataclass(frozen=True)
class Owned:
    """The ownership of a key.

    Attributes:
        scope: the tenant, the operation and the key.
        epoch: the epoch of this owner. Every later owner has a higher one.
        entered: when the key was entered, in milliseconds since 1970. With the epoch it identifies
            the row.
        is_resumed: whether the key had an earlier owner that did not finish.
    """

    scope: tuple[str, str, str]
    epoch: int
    entered: int
    is_resumed: bool


class Owner:
    """The owner of a key."""

    def __init__(
        self, driver: Driver, schema: str, owned: Owned, lease: float, asked: float
    ) -> None:
        self.driver = driver
        self.owned = owned
        self.lease = lease
        self.is_fenced = False
        self.is_over = False
        self.lost: BaseException | None = None
        """Why it is not known whether a phase was committed."""
        self._schema = schema
        self._held_until = asked + lease
        self._renewal: _Renewal | None = None

    def is_held(self) -> bool:
        """Whether the lease has certainly not expired, by the clock of this process."""
        return not self.is_fenced and time.monotonic() < self._held_until

    def check(self) -> None:
        """Raise if the handler may not commit any more."""
        if self.is_fenced:
            raise FencedError(self.owned.epoch)
        if self.lost is not None:
            raise lost_commit() from self.lost
        if self.is_over:
            raise EndedError("the request has ended: end every phase and call before you respond")

    def keep(self) -> None:
        """Renew the lease until the request ends."""
        kind = _TaskRenewal if self.driver.is_async else _ThreadRenewal
        self._renewal = kind(self._renew, self.lease / 3)

    def settle(self) -> None:
        """End the handler's use of the key. No renewal is sent after this."""
        self.is_over = True
        if self._renewal is not None:
            self._renewal.stop()

    async def provider_key(self, step: str) -> str:
        """Return the key for a step at a provider. The lease is renewed before."""
        self.check()
        asked = time.monotonic()
        values = (*self._names(), self.lease, self.owned.entered)
        named = (*self._names(), step, self.owned.entered)
        row = await self._fetch(sql.PROVIDER_KEY, *values, *named)
        self._held_until = asked + self.lease
        # The request may have ended meanwhile, and no call begins after that.
        self.check()
        return str(row[1])

    async def open(self) -> Unit:
        """Begin the transaction of a phase."""
        self.check()
        unit = await self.driver.begin()
        try:
            await unit.run(sql.SAVEPOINT)
            # If the request has ended while it waited for a connection, nothing would end the last
            # transaction.
            self.check()
        except BaseException:
            await unit.rollback()
            raise
        return unit

    async def commit_phase(self, unit: Unit, name: str, data: str, events: str) -> None:
        """Commit a phase."""
        values = (*self._names(), name, data, events, self.owned.entered)
        await self._commit(unit, sql.PHASE, values, self.check)

    async def commit_last(self, unit: Unit, response: Response, events: str) -> None:
        """Commit the last phase with the response."""
        await self._commit(unit, sql.FINISH, self._response(response, events))

    async def finish(self, response: Response) -> None:
        """Store the response without further rows."""
        await self._run(sql.FINISH, *self._response(response, "[]"))

    async def give_back(self) -> None:
        """End the lease, so that a retry need not wait for it."""
        await self._renewed()
        await self._run(sql.RENEW, *self._names(), 0.0, self.owned.entered)

    async def release(self) -> None:
        """Release the key as if it had never been used."""
        await self._renewed()
        await self._run(sql.NOTHING_HAPPENED, *self._names(), self.owned.entered)

    def heed(self, error: BaseException) -> BaseException:
        """Return the error to raise, and record if it says that another owner has the key."""
        failure = self.driver.failure(error)
        if failure is None or failure.sqlstate != "HX005":
            return error
        self.is_fenced = True
        return FencedError(self.owned.epoch)

    async def _commit(
        self,
        unit: Unit,
        statement: str,
        values: tuple[object, ...],
        may_commit: Callable[[], None] = lambda: None,
    ) -> None:
        """Commit a phase, or roll it back if ``may_commit`` raises."""
        try:
            may_commit()
            await unit.flush()
            await unit.run(sql.RELEASE_SAVEPOINT)
            # The request may have ended while these statements ran.
            may_commit()
        except BaseException as error:
            await unit.rollback()
            failure = self.driver.failure(error)
            if failure is not None and failure.is_outside:
                problem = ended_by_handler()
                log.error("%s", problem.detail)
                raise problem from error
            raise
        try:
            await unit.commit_with(sql.in_schema(statement, self._schema), *values)
        except Exception as error:
            heeded = self.heed(error)
            if heeded is not error:
                raise heeded from error
            failure = self.driver.failure(error)
            # An error that is not the driver's, such as a TimeoutError, may come after the COMMIT.
            if failure is None or failure.ends_session:
                self.lost = error
                raise lost_commit() from error
            raise
        except BaseException as error:
            # It was cancelled, and the server may have committed.
            self.lost = error
            raise

    async def _renew(self) -> None:
        asked = time.monotonic()
        try:
            await self._run(sql.RENEW, *self._names(), self.lease, self.owned.entered)
        except Exception as error:
            # The next renewal is soon. If the lease ends before, the key is still this owner's
            # until another one takes it over.
            if not self.is_over:
                log.warning("cannot renew the lease of a key: %s", type(error).__name__)
        else:
            self._held_until = asked + self.lease

    async def _renewed(self) -> None:
        # A renewal that arrives later would take the key again.
        if self._renewal is not None:
            await self._renewal.ended()

    async def _fetch(self, statement: str, *values: object) -> sql.Row:
        unit = await self.driver.begin()
        try:
            row = await unit.fetch(sql.in_schema(statement, self._schema), *values)
        except BaseException as error:
            await unit.rollback()
            raise self.heed(error) from error
        await unit.commit()
        return row

    async def _run(self, statement: str, *values: object) -> None:
        unit = await self.driver.begin()
        try:
            await unit.commit_with(sql.in_schema(statement, self._schema), *values)
        except Exception as error:
            raise self.heed(error) from error

    def _names(self) -> tuple[object, ...]:
        return (*self.owned.scope, self.owned.epoch)

    def _response(self, response: Response, events: str) -> tuple[object, ...]:
        headers = sql.headers_json(response.headers)
        stored = (response.status, headers, response.body, events)
        return (*self._names(), *stored, self.owned.entered)


def lost_commit() -> Problem:
    """Return the problem of a phase whose commit may or may not have happened."""
    detail = "the result of a commit was lost; a retry continues after it"
    return Problem(codes.UNAVAILABLE, detail, retry_after=RETRY_AFTER)


def ended_by_handler() -> Problem:
    """Return the problem of a handler that has ended the transaction of a phase."""
    detail = (
        "the handler has ended the transaction of a phase, and what it has committed is kept; it "
        "must neither commit nor roll back"
    )
    return Problem(codes.INTERNAL, detail)


class _Renewal(Protocol):
    """Renews a lease until it is stopped."""

    def __init__(self, renew: Callable[[], Awaitable[None]], interval: float) -> None: ...

    def stop(self) -> None:
        """Send no further renewal."""

    async def ended(self) -> None:
        """Wait for a renewal in progress, after :meth:`stop`."""


class _TaskRenewal:
    def __init__(self, renew: Callable[[], Awaitable[None]], interval: float) -> None:
        self._stopped = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(renew, interval))

    async def _run(self, renew: Callable[[], Awaitable[None]], interval: float) -> None:
        stopped = asyncio.ensure_future(self._stopped.wait())
        while not (await asyncio.wait({stopped}, timeout=interval))[0]:
            await renew()

    def stop(self) -> None:
        self._stopped.set()

    async def ended(self) -> None:
        await self._task


class _ThreadRenewal:
    def __init__(self, renew: Callable[[], Any], interval: float) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(renew, interval), name="hapax renewal", daemon=True
        )
        self._thread.start()

    def _run(self, renew: Callable[[], Any], interval: float) -> None:
        while not self._stopped.wait(interval):
            run_blocking(renew())

    def stop(self) -> None:
        self._stopped.set()

    async def ended(self) -> None:
        self._thread.join()
