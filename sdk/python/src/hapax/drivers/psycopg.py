"""psycopg 3: pools and connections, both as coroutines and as functions."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from hapax.core.driver import Driver, Failure, Pause, Unit, classify, done
from hapax.core.sql import ROLLBACK_TO_SAVEPOINT, Row, with_placeholders

from . import no_transaction

try:
    from psycopg_pool import AsyncConnectionPool, ConnectionPool
except ImportError:  # pragma: no cover - the pool is a separate distribution
    AsyncConnectionPool = ConnectionPool = None  # type: ignore[assignment,misc]


def driver(engine: Any) -> Driver | None:
    """Return a driver for a pool."""
    if AsyncConnectionPool is None or not isinstance(engine, (AsyncConnectionPool, ConnectionPool)):
        return None
    return PsycopgDriver(engine)


def joined(connection: Any) -> Unit | None:
    """Return the open transaction of a connection."""
    if not isinstance(connection, (psycopg.Connection, psycopg.AsyncConnection)):
        return None
    is_idle = connection.info.transaction_status == TransactionStatus.IDLE
    if connection.autocommit and is_idle:
        raise no_transaction(connection, "open one with connection.transaction()")
    return PsycopgUnit(None, connection)


class PsycopgDriver:
    """An ``AsyncConnectionPool`` or a ``ConnectionPool``."""

    contract_checked = False

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.is_async = isinstance(pool, AsyncConnectionPool)

    async def begin(self) -> Unit:
        """See :meth:`hapax.core.driver.Driver.begin`."""
        unit = PsycopgUnit(self._pool, await done(self._pool.getconn()))
        try:
            await unit.open()
        except BaseException:
            await unit.give_back()
            raise
        return unit

    async def sleep(self, seconds: float) -> None:
        """See :meth:`hapax.core.driver.Driver.sleep`."""
        await (asyncio.sleep(seconds) if self.is_async else Pause(seconds))

    def failure(self, error: BaseException) -> Failure | None:
        """See :meth:`hapax.core.driver.Driver.failure`."""
        if not isinstance(error, psycopg.Error):
            return None
        if error.sqlstate is None and not isinstance(
            error, (psycopg.OperationalError, psycopg.InterfaceError)
        ):
            return classify("XX000")
        return classify(error.sqlstate, error.diag.constraint_name)


class PsycopgUnit:
    """A transaction on a connection."""

    session = None

    def __init__(self, pool: Any, connection: Any) -> None:
        self._pool = pool
        self.connection = connection
        # While this context is open, psycopg refuses `connection.commit()` in the handler.
        self._context: Any = None

    async def open(self) -> None:
        """Begin."""
        context: Any = self.connection.transaction()
        self._context = context
        is_async = hasattr(context, "__aenter__")
        await done(context.__aenter__() if is_async else context.__enter__())

    async def fetch(self, sql: str, *params: object) -> Row:
        """See :meth:`hapax.core.driver.Unit.fetch`."""
        cursor = self.connection.cursor(row_factory=tuple_row)
        await done(cursor.execute(with_placeholders(sql, _placeholder), params))
        return cast("Row", await done(cursor.fetchone()))

    async def run(self, sql: str) -> None:
        """See :meth:`hapax.core.driver.Unit.run`."""
        await done(self.connection.execute(sql))

    async def flush(self) -> None:
        """There is nothing to write."""

    async def discard(self) -> None:
        """See :meth:`hapax.core.driver.Unit.discard`."""
        await self.run(ROLLBACK_TO_SAVEPOINT)

    async def commit(self) -> None:
        """See :meth:`hapax.core.driver.Unit.commit`."""
        try:
            await self._close(None, None)
        finally:
            await self.give_back()

    async def rollback(self) -> None:
        """See :meth:`hapax.core.driver.Unit.rollback`."""
        try:
            with contextlib.suppress(psycopg.Error):
                await self._close(psycopg.Rollback, psycopg.Rollback(self._context))
        finally:
            await self.give_back()

    async def give_back(self) -> None:
        """Return the connection to its pool, which closes it if it is broken."""
        await done(self._pool.putconn(self.connection))

    async def _close(self, kind: Any, error: BaseException | None) -> None:
        context = self._context
        is_async = hasattr(context, "__aexit__")
        ended = context.__aexit__ if is_async else context.__exit__
        await done(ended(kind, error, None))


def _placeholder(_: int) -> str:
    return "%s"
