"""asyncpg: pools and connections."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

import asyncpg

from hapax.core.driver import Driver, Failure, NoConnectionError, Unit, classify
from hapax.core.sql import ROLLBACK_TO_SAVEPOINT, Row, with_placeholders

from . import no_transaction

ACQUIRE = 10.0
"""Time in seconds that a request waits for a connection. asyncpg itself would wait forever."""


def driver(engine: Any) -> Driver | None:
    """Return a driver for a pool."""
    return AsyncpgDriver(engine) if isinstance(engine, asyncpg.Pool) else None


def joined(connection: Any) -> Unit | None:
    """Return the open transaction of a connection."""
    if not hasattr(connection, "is_in_transaction"):
        return None
    if not connection.is_in_transaction():
        raise no_transaction(connection, "open one with connection.transaction()")
    return cast("Unit", AsyncpgUnit(None, connection))


class AsyncpgDriver:
    """An ``asyncpg.Pool``."""

    is_async = True
    contract_checked = False

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def begin(self) -> Unit:
        """See :meth:`hapax.core.driver.Driver.begin`."""
        try:
            connection = await self._pool.acquire(timeout=ACQUIRE)
        except (OSError, asyncio.TimeoutError) as error:
            raise NoConnectionError(str(error) or "no connection in time") from error
        unit = AsyncpgUnit(self._pool, connection)
        try:
            await unit.open()
        except BaseException:
            await unit.give_back()
            raise
        return unit

    async def sleep(self, seconds: float) -> None:
        """See :meth:`hapax.core.driver.Driver.sleep`."""
        await asyncio.sleep(seconds)

    def failure(self, error: BaseException) -> Failure | None:
        """See :meth:`hapax.core.driver.Driver.failure`."""
        if isinstance(error, asyncpg.PostgresError):
            return classify(error.sqlstate, getattr(error, "constraint_name", None))
        if isinstance(error, asyncpg.DataError):
            # A value that the driver cannot send as the type of its parameter.
            return classify("22000")
        lost = (asyncpg.InterfaceError, ConnectionError)
        return classify(None) if isinstance(error, lost) else None


class AsyncpgUnit:
    """A transaction on a connection of asyncpg."""

    session = None

    def __init__(self, pool: Any, connection: Any) -> None:
        self._pool = pool
        self.connection = connection
        self._transaction: Any = None

    async def open(self) -> None:
        """Begin."""
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def fetch(self, sql: str, *params: object) -> Row:
        """See :meth:`hapax.core.driver.Unit.fetch`."""
        row = await self.connection.fetchrow(with_placeholders(sql, _placeholder), *params)
        return tuple(row)

    async def run(self, sql: str) -> None:
        """See :meth:`hapax.core.driver.Unit.run`."""
        await self.connection.execute(sql)

    async def flush(self) -> None:
        """There is nothing to write."""

    async def discard(self) -> None:
        """See :meth:`hapax.core.driver.Unit.discard`."""
        await self.connection.execute(ROLLBACK_TO_SAVEPOINT)

    async def commit(self) -> None:
        """See :meth:`hapax.core.driver.Unit.commit`."""
        try:
            await self._transaction.commit()
        finally:
            await self.give_back()

    async def rollback(self) -> None:
        """See :meth:`hapax.core.driver.Unit.rollback`."""
        lost = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)
        try:
            with contextlib.suppress(*lost):
                await self._transaction.rollback()
        finally:
            await self.give_back()

    async def give_back(self) -> None:
        """Return the connection to its pool, which closes it if it is broken."""
        with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            await self._pool.release(self.connection)


def _placeholder(number: int) -> str:
    return f"${number}"
