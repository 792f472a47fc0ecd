"""psycopg 3: pools and connections, both as coroutines and as functions."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from hapax.core.driver import (
    Driver,
    Failure,
    Pause,
    Unit,
    claim_apart,
    classify,
    done,
)
from hapax.core.sql import Row

from . import no_transaction
from .psycopg_unit import PsycopgUnit

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


def failure(error: BaseException) -> Failure | None:
    """Return what an error of psycopg means, or ``None`` if it is not one."""
    if not isinstance(error, psycopg.Error):
        return None
    if "forbidden within a Transaction" in str(error):
        # `commit()` or `rollback()` in the handler, which psycopg has refused.
        return classify("HX002")
    if error.sqlstate is None and not isinstance(
        error, (psycopg.OperationalError, psycopg.InterfaceError)
    ):
        return classify("XX000")
    return classify(error.sqlstate, error.diag.constraint_name)


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

    async def claim(self, sql: str, *params: object) -> tuple[Unit, Row]:
        """See :meth:`hapax.core.driver.Driver.claim`."""
        if not PsycopgUnit.has_pipelines:
            return await claim_apart(self, sql, params)
        unit = PsycopgUnit(self._pool, await done(self._pool.getconn()))
        try:
            return unit, await unit.claim(sql, params)
        except BaseException:
            await unit.rollback()
            raise

    async def sleep(self, seconds: float) -> None:
        """See :meth:`hapax.core.driver.Driver.sleep`."""
        await (asyncio.sleep(seconds) if self.is_async else Pause(seconds))

    def failure(self, error: BaseException) -> Failure | None:
        """See :meth:`hapax.core.driver.Driver.failure`."""
        return failure(error)
