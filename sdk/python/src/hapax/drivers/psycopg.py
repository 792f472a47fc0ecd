"""psycopg 3: pools, connections, and both of them as coroutines."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from hapax.core.driver import Driver, Failure, Pause, Unit, classify
from hapax.core.sql import ROLLBACK_TO_SAVEPOINT, Row, with_placeholders

from . import no_transaction

try:
    from psycopg_pool import AsyncConnectionPool, ConnectionPool
except ImportError:  # pragma: no cover - the pool is a separate distribution
    AsyncConnectionPool = ConnectionPool = None  # type: ignore[assignment,misc]


def driver(engine: Any) -> Driver | None:
    """Return a driver for a pool."""
    if AsyncConnectionPool is None:
        return None
    if isinstance(engine, AsyncConnectionPool):
        return AsyncDriver(engine)
    if isinstance(engine, ConnectionPool):
        return SyncDriver(engine)
    return None


def joined(connection: Any) -> Unit | None:
    """Return the open transaction of a connection."""
    if not isinstance(connection, (psycopg.Connection, psycopg.AsyncConnection)):
        return None
    is_idle = connection.info.transaction_status == TransactionStatus.IDLE
    if connection.autocommit and is_idle:
        raise no_transaction(connection, "open one with connection.transaction()")
    kind = AsyncUnit if isinstance(connection, psycopg.AsyncConnection) else SyncUnit
    return cast("Unit", kind(None, connection))


class _Errors:
    contract_checked = False

    def failure(self, error: BaseException) -> Failure | None:
        """See :meth:`hapax.core.driver.Driver.failure`."""
        if not isinstance(error, psycopg.Error):
            return None
        if error.sqlstate is None and not isinstance(
            error, (psycopg.OperationalError, psycopg.InterfaceError)
        ):
            return classify("XX000")
        return classify(error.sqlstate, error.diag.constraint_name)


class AsyncDriver(_Errors):
    """An ``AsyncConnectionPool``."""

    is_async = True

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def begin(self) -> Unit:
        """See :meth:`hapax.core.driver.Driver.begin`."""
        connection = await self._pool.getconn()
        unit = AsyncUnit(self._pool, connection)
        try:
            await unit.open()
        except BaseException:
            await unit.give_back()
            raise
        return unit

    async def sleep(self, seconds: float) -> None:
        """See :meth:`hapax.core.driver.Driver.sleep`."""
        await asyncio.sleep(seconds)


class SyncDriver(_Errors):
    """A ``ConnectionPool``."""

    is_async = False

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def begin(self) -> Unit:
        """See :meth:`hapax.core.driver.Driver.begin`."""
        unit = SyncUnit(self._pool, self._pool.getconn())
        try:
            unit.open()
        except BaseException:
            unit.give_back()
            raise
        return unit

    async def sleep(self, seconds: float) -> None:
        """See :meth:`hapax.core.driver.Driver.sleep`."""
        await Pause(seconds)


class _Unit:
    session = None

    def __init__(self, pool: Any, connection: Any) -> None:
        self._pool = pool
        self.connection = connection
        # While this context is open, psycopg refuses `connection.commit()` in the handler.
        self._context: Any = None

    async def flush(self) -> None:
        """There is nothing to write."""


class AsyncUnit(_Unit):
    """A transaction on an ``AsyncConnection``."""

    async def open(self) -> None:
        """Begin."""
        self._context = self.connection.transaction()
        await self._context.__aenter__()

    async def fetch(self, sql: str, *params: object) -> Row:
        """See :meth:`hapax.core.driver.Unit.fetch`."""
        async with self.connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(with_placeholders(sql, _placeholder), params)
            return cast("Row", await cursor.fetchone())

    async def run(self, sql: str) -> None:
        """See :meth:`hapax.core.driver.Unit.run`."""
        await self.connection.execute(sql)

    async def discard(self) -> None:
        """See :meth:`hapax.core.driver.Unit.discard`."""
        await self.run(ROLLBACK_TO_SAVEPOINT)

    async def commit(self) -> None:
        """See :meth:`hapax.core.driver.Unit.commit`."""
        try:
            await self._context.__aexit__(None, None, None)
        finally:
            await self.give_back()

    async def rollback(self) -> None:
        """See :meth:`hapax.core.driver.Unit.rollback`."""
        try:
            with contextlib.suppress(psycopg.Error):
                await self._context.__aexit__(*_rollback(self._context))
        finally:
            await self.give_back()

    async def give_back(self) -> None:
        """Return the connection to its pool, which closes it if it is broken."""
        await self._pool.putconn(self.connection)


class SyncUnit(_Unit):
    """A transaction on a ``Connection``."""

    def open(self) -> None:
        """Begin."""
        self._context = self.connection.transaction()
        self._context.__enter__()

    async def fetch(self, sql: str, *params: object) -> Row:
        """See :meth:`hapax.core.driver.Unit.fetch`."""
        with self.connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(with_placeholders(sql, _placeholder), params)
            return cast("Row", cursor.fetchone())

    async def run(self, sql: str) -> None:
        """See :meth:`hapax.core.driver.Unit.run`."""
        self.connection.execute(sql)

    async def discard(self) -> None:
        """See :meth:`hapax.core.driver.Unit.discard`."""
        self.connection.execute(ROLLBACK_TO_SAVEPOINT)

    async def commit(self) -> None:
        """See :meth:`hapax.core.driver.Unit.commit`."""
        try:
            self._context.__exit__(None, None, None)
        finally:
            self.give_back()

    async def rollback(self) -> None:
        """See :meth:`hapax.core.driver.Unit.rollback`."""
        try:
            with contextlib.suppress(psycopg.Error):
                self._context.__exit__(*_rollback(self._context))
        finally:
            self.give_back()

    def give_back(self) -> None:
        """Return the connection to its pool, which closes it if it is broken."""
        self._pool.putconn(self.connection)


def _placeholder(_: int) -> str:
    return "%s"


def _rollback(context: Any) -> tuple[type[BaseException], BaseException, None]:
    return psycopg.Rollback, psycopg.Rollback(context), None
