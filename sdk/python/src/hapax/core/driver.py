"""What the core needs of a database driver.

All methods are coroutines. Those of a synchronous driver suspend only in :class:`Pause`, so that
:func:`run_blocking` can run the same core code without an event loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from enum import Enum
from inspect import isawaitable
from typing import Any, Generic, Protocol, TypeVar

from .sql import SAVEPOINT, Row

T = TypeVar("T")


class Kind(Enum):
    """What an error of the database means for the request."""

    UNAVAILABLE = "unavailable"
    """There is no connection, or it broke, or the server cannot write."""
    CONFLICT = "conflict"
    """The transaction lost against another one and changed nothing."""
    STATEMENT = "statement"
    """The server refused the statement and would refuse it again."""


@dataclass(frozen=True)
class Failure:
    """An error of the database.

    Attributes:
        kind: what it means.
        sqlstate: the code of the server, if the error came from the server.
        constraint: the violated constraint, if there is one.
    """

    kind: Kind
    sqlstate: str | None = None
    constraint: str | None = None

    @property
    def ends_session(self) -> bool:
        """Whether a COMMIT that failed with this error may have been executed."""
        if self.sqlstate is None:
            return True
        return self.sqlstate.startswith(("08", "57P")) or self.sqlstate in {"25P03", "25P04"}

    @property
    def is_outside(self) -> bool:
        """Whether the handler has ended the transaction."""
        return self.sqlstate in {"HX002", "25P01", "3B001"}


_UNAVAILABLE = ("08", "53", "57P", "58")
_UNAVAILABLE_CODES = frozenset({"25006", "25P03", "25P04", "55P03", "57014"})


def classify(sqlstate: str | None, constraint: str | None = None) -> Failure:
    """Classify an error by its SQLSTATE; ``None`` is an error of the connection."""
    if sqlstate is None or sqlstate.startswith(_UNAVAILABLE) or sqlstate in _UNAVAILABLE_CODES:
        return Failure(Kind.UNAVAILABLE, sqlstate, constraint)
    if sqlstate.startswith("40"):
        return Failure(Kind.CONFLICT, sqlstate, constraint)
    return Failure(Kind.STATEMENT, sqlstate, constraint)


class NoConnectionError(ConnectionError):
    """The engine has given no connection.

    It replaces errors such as ``OSError``, which in a handler can mean anything.
    """


class Unit(Protocol):
    """A transaction, with the connection that it has taken from the pool."""

    @property
    def connection(self) -> Any:
        """The connection for the handler."""

    @property
    def session(self) -> Any:
        """The ORM session on the connection, if the driver has one."""

    async def fetch(self, sql: str, *params: object) -> Row:
        """Execute a statement of :mod:`hapax.core.sql` and return its only row."""

    async def run(self, sql: str) -> None:
        """Execute a statement without parameters and rows."""

    async def flush(self) -> None:
        """Write what the ORM session has not written yet."""

    async def discard(self) -> None:
        """Roll back to the savepoint, with what the ORM session holds."""

    async def commit(self) -> None:
        """Commit and return the connection. It is returned even if this fails."""

    async def commit_with(self, sql: str, *params: object) -> None:
        """Execute a last statement of :mod:`hapax.core.sql`, and :meth:`commit`.

        A driver that can do so sends both together. If this fails, nothing is left open, and an
        error that ends the session leaves it unknown whether the transaction was committed.
        """

    async def rollback(self) -> None:
        """Roll back and return the connection. Errors are ignored: nothing was committed."""


class Driver(Protocol):
    """An engine or a pool of the user."""

    is_async: bool
    contract_checked: bool
    """Whether the version of the SQL contract was checked."""

    async def begin(self) -> Unit:
        """Take a connection and begin a transaction."""

    async def claim(self, sql: str, *params: object) -> tuple[Unit, Row]:
        """Take a connection, begin, execute a claim and set the savepoint.

        A driver that can do so sends all statements together. So the savepoint is set whatever the
        outcome of the claim is.
        """

    async def sleep(self, seconds: float) -> None:
        """Wait. No connection is held meanwhile."""

    def failure(self, error: BaseException) -> Failure | None:
        """Return what an error means, or ``None`` if it is not an error of the database."""


async def claim_apart(driver: Driver, sql: str, params: tuple[object, ...]) -> tuple[Unit, Row]:
    """Claim with a driver that waits for the result of each statement."""
    unit = await driver.begin()
    try:
        row = await unit.fetch(sql, *params)
        await unit.run(SAVEPOINT)
    except BaseException:
        await unit.rollback()
        raise
    return unit, row


async def commit_apart(unit: Unit, sql: str, params: tuple[object, ...]) -> None:
    """Commit with a driver that waits for the result of each statement."""
    try:
        await unit.fetch(sql, *params)
    except BaseException:
        await unit.rollback()
        raise
    await unit.commit()


@dataclass(frozen=True)
class Pause:
    """Suspends core code on a synchronous driver. The caller waits."""

    seconds: float

    def __await__(self) -> Generator[float, None, None]:
        """Yield the time to wait."""
        yield self.seconds


@dataclass(frozen=True)
class Done(Generic[T]):
    """The result of core code."""

    value: T


def advance(coroutine: Coroutine[Any, Any, T]) -> Done[T] | float:
    """Run core code on a synchronous driver up to its end, or up to a pause in seconds."""
    try:
        seconds: float = coroutine.send(None)
    except StopIteration as end:
        return Done(end.value)
    return seconds


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run core code on a synchronous driver."""
    while True:
        step = advance(coroutine)
        if isinstance(step, Done):
            return step.value
        time.sleep(step)


async def within(seconds: float, driver: Driver, coroutine: Coroutine[Any, Any, None]) -> None:
    """Run core code for a limited time. On a synchronous driver it continues after that.

    Raises:
        asyncio.TimeoutError: it has not ended in time.
    """
    if driver.is_async:
        await asyncio.wait_for(coroutine, seconds)
        return
    raised: list[BaseException] = []

    def run() -> None:
        try:
            run_blocking(coroutine)
        except BaseException as error:
            raised.append(error)

    # What waits for a connection cannot be interrupted.
    thread = threading.Thread(target=run, name="hapax end", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise asyncio.TimeoutError
    if raised:
        raise raised[0]


async def done(value: Any) -> Any:
    """Await what an asynchronous driver returns, and return what a synchronous one has returned."""
    return await value if isawaitable(value) else value


async def run_in_threads(
    in_thread: Callable[..., Awaitable[Any]],
    coroutine: Coroutine[Any, Any, T],
    sleep: Callable[[float], Awaitable[None]],
) -> T:
    """Run core code on a synchronous driver from an event loop. No thread is held in a pause."""
    while True:
        step: Done[T] | float = await in_thread(advance, coroutine)
        if isinstance(step, Done):
            return step.value
        await sleep(step)
