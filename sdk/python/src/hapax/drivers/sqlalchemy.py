"""SQLAlchemy 2: engines and session makers, both as coroutines and as functions.

A session of the handler joins the transaction with a savepoint, so ``session.commit()`` and
``session.rollback()`` of the handler neither end the transaction nor lose the key.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy import Connection, Engine, exc
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from hapax.core.driver import (
    Driver,
    Failure,
    NoConnectionError,
    Pause,
    Unit,
    classify,
    done,
)
from hapax.core.errors import EngineError
from hapax.core.sql import Row

from . import no_transaction
from .sqlalchemy_below import failure_below
from .sqlalchemy_unit import AlchemyUnit


def driver(engine: Any) -> Driver | None:
    """Return a driver for an engine or a session maker."""
    maker = engine
    if isinstance(engine, (async_sessionmaker, sessionmaker)):
        engine = engine.kw.get("bind")
        if engine is None:
            raise EngineError("the session maker has no bind: create it with bind=engine")
    is_maker = maker is not engine
    if isinstance(engine, AsyncEngine):
        return AlchemyDriver(engine, maker if is_maker else async_sessionmaker(engine))
    if isinstance(engine, Engine):
        return AlchemyDriver(engine, maker if is_maker else sessionmaker(engine))
    return None


def joined(connection: Any) -> Unit | None:
    """Return the open transaction of a connection or a session."""
    sessions = (AsyncSession, async_scoped_session, Session, scoped_session)
    if not isinstance(connection, (*sessions, AsyncConnection, Connection)):
        return None
    if isinstance(connection, (AsyncConnection, Connection)) and not connection.in_transaction():
        raise no_transaction(connection, "open one with engine.begin()")
    return AlchemyUnit(connection, None)


class AlchemyDriver:
    """An ``AsyncEngine`` or an ``Engine``."""

    contract_checked = False

    def __init__(self, engine: Any, maker: Any) -> None:
        self._engine = engine
        self._maker = maker
        self.is_async = isinstance(engine, AsyncEngine)

    async def begin(self) -> Unit:
        """See :meth:`hapax.core.driver.Driver.begin`."""
        unit = await self._unit()
        try:
            await unit.open()
        except BaseException:
            await unit.give_back()
            raise
        return unit

    async def _unit(self) -> AlchemyUnit:
        try:
            connection = await done(self._engine.connect())
        except (OSError, asyncio.TimeoutError) as error:
            raise NoConnectionError(str(error) or "no connection in time") from error
        return AlchemyUnit(connection, self._maker)

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
        await (asyncio.sleep(seconds) if self.is_async else Pause(seconds))

    def failure(self, error: BaseException) -> Failure | None:
        """See :meth:`hapax.core.driver.Driver.failure`."""
        if isinstance(error, exc.DBAPIError):
            sqlstate = _sqlstate(error.orig)
            below = failure_below(error.orig) if sqlstate is None and error.orig else None
            if below is not None and below.sqlstate == "HX002":
                return below
            if error.connection_invalidated or (sqlstate is None and _is_lost(error)):
                return classify(None)
            constraint = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
            return classify(sqlstate or "XX000", constraint)
        if isinstance(error, (exc.TimeoutError, ConnectionError)):
            return classify(None)
        if (found := failure_below(error)) is not None:
            return found
        # For example a flush of an object that refers to one that was not saved.
        return classify("XX000") if isinstance(error, exc.SQLAlchemyError) else None


def _sqlstate(error: BaseException | None) -> str | None:
    """Return the code of the server: psycopg and asyncpg call it sqlstate, psycopg2 pgcode."""
    found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return found if isinstance(found, str) else None


def _is_lost(error: exc.DBAPIError) -> bool:
    return isinstance(error, (exc.OperationalError, exc.InterfaceError))
