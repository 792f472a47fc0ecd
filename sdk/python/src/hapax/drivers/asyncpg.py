"""asyncpg: pools and connections."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import asyncpg

from hapax.core.driver import (
    Driver,
    Failure,
    NoConnectionError,
    Unit,
    classify,
)
from hapax.core.sql import Row

from . import no_transaction
from .asyncpg_unit import AsyncpgUnit

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


def failure(error: BaseException) -> Failure | None:
    """Return what an error of asyncpg means, or ``None`` if it is not one."""
    if isinstance(error, asyncpg.PostgresError):
        return classify(error.sqlstate, getattr(error, "constraint_name", None))
    if isinstance(error, asyncpg.DataError):
        # A value that the driver cannot send as the type of its parameter.
        return classify("22000")
    if "the transaction is already" in str(error) and isinstance(error, asyncpg.InterfaceError):
        # `commit()` or `rollback()` of SQLAlchemy in the handler.
        return classify("HX002")
    lost = (asyncpg.InterfaceError, ConnectionError)
    return classify(None) if isinstance(error, lost) else None


class AsyncpgDriver:
    """An ``asyncpg.Pool``."""

    is_async = True
    contract_checked = False

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def begin(self) -> Unit:
        """See :meth:`hapax.core.driver.Driver.begin`."""
        unit = await self._unit()
        try:
            await unit.open()
        except BaseException:
            await unit.give_back()
            raise
        return unit

    async def _unit(self) -> AsyncpgUnit:
        try:
            connection = await self._pool.acquire(timeout=ACQUIRE)
        except (OSError, asyncio.TimeoutError) as error:
            raise NoConnectionError(str(error) or "no connection in time") from error
        return AsyncpgUnit(self._pool, connection)

    async def claim(self, sql: str, *params: object) -> tuple[Unit, Row]:
        """See :meth:`hapax.core.driver.Driver.claim`."""
        unit = await self._unit()
        try:
            return unit, await unit.claim(sql, params)
        except BaseException:
            await unit.rollback()
            raise

    async def sleep(self, seconds: float) -> None:
        """See :meth:`hapax.core.driver.Driver.sleep`."""
        await asyncio.sleep(seconds)

    def failure(self, error: BaseException) -> Failure | None:
        """See :meth:`hapax.core.driver.Driver.failure`."""
        return failure(error)
