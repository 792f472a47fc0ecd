"""SQLAlchemy 2: engines and session makers, both as coroutines and as functions.

A session of the handler joins the transaction with a savepoint, so ``session.commit()`` and
``session.rollback()`` of the handler neither end the transaction nor lose the key.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from sqlalchemy import Connection, Engine, exc, text
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
from hapax.core.sql import ROLLBACK_TO_SAVEPOINT, Row, with_placeholders

from . import no_transaction

_JOIN = "create_savepoint"


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
        try:
            connection = await done(self._engine.connect())
        except (OSError, asyncio.TimeoutError) as error:
            raise NoConnectionError(str(error) or "no connection in time") from error
        unit = AlchemyUnit(connection, self._maker)
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
        if isinstance(error, exc.DBAPIError):
            sqlstate = _sqlstate(error.orig)
            if error.connection_invalidated or (sqlstate is None and _is_lost(error)):
                return classify(None)
            constraint = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
            return classify(sqlstate or "XX000", constraint)
        if isinstance(error, (exc.TimeoutError, ConnectionError)):
            return classify(None)
        # For example a flush of an object that refers to one that was not saved.
        return classify("XX000") if isinstance(error, exc.SQLAlchemyError) else None


class AlchemyUnit:
    """A transaction on an ``AsyncConnection`` or a ``Connection``."""

    def __init__(self, connection: Any, maker: Any) -> None:
        self.connection = connection
        self._maker = maker
        self._transaction: Any = None
        self._session: Any = None

    @property
    def session(self) -> Any:
        """The session on the connection, which is created when it is first used."""
        if self._session is None:
            self._session = self._maker(bind=self.connection, join_transaction_mode=_JOIN)
        return self._session

    async def open(self) -> None:
        """Begin."""
        self._transaction = await done(self.connection.begin())

    async def fetch(self, sql: str, *params: object) -> Row:
        """See :meth:`hapax.core.driver.Unit.fetch`."""
        result = await done(self.connection.execute(*_statement(sql, params)))
        return tuple(result.one())

    async def run(self, sql: str) -> None:
        """See :meth:`hapax.core.driver.Unit.run`."""
        await done(self.connection.execute(text(sql)))

    async def flush(self) -> None:
        """See :meth:`hapax.core.driver.Unit.flush`."""
        if self._session is not None:
            await done(self._session.commit())
            await done(self._session.close())

    async def discard(self) -> None:
        """See :meth:`hapax.core.driver.Unit.discard`."""
        await self._close_session()
        await self.run(ROLLBACK_TO_SAVEPOINT)

    async def commit(self) -> None:
        """See :meth:`hapax.core.driver.Unit.commit`."""
        try:
            await done(self._transaction.commit())
        except BaseException:
            await self._invalidate()
            raise
        finally:
            await self.give_back()

    async def rollback(self) -> None:
        """See :meth:`hapax.core.driver.Unit.rollback`."""
        try:
            await self._close_session()
            if self._transaction.is_active:
                await done(self._transaction.rollback())
        except (exc.SQLAlchemyError, OSError):
            await self._invalidate()
        finally:
            await self.give_back()

    async def give_back(self) -> None:
        """Return the connection to its pool, which closes it if it is broken."""
        with contextlib.suppress(exc.SQLAlchemyError, OSError):
            await done(self.connection.close())

    async def _invalidate(self) -> None:
        """Keep a connection that may be broken out of the pool: not every driver notices."""
        with contextlib.suppress(exc.SQLAlchemyError, OSError):
            await done(self.connection.invalidate())

    async def _close_session(self) -> None:
        if self._session is not None:
            with contextlib.suppress(exc.SQLAlchemyError, OSError):
                await done(self._session.close())


def _statement(sql: str, params: tuple[object, ...]) -> tuple[Any, dict[str, object]]:
    named = {f"p{number}": value for number, value in enumerate(params, 1)}
    return text(with_placeholders(sql, _placeholder)), named


def _placeholder(number: int) -> str:
    return f":p{number}"


def _sqlstate(error: BaseException | None) -> str | None:
    """Return the code of the server: psycopg and asyncpg call it sqlstate, psycopg2 pgcode."""
    found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return found if isinstance(found, str) else None


def _is_lost(error: exc.DBAPIError) -> bool:
    return isinstance(error, (exc.OperationalError, exc.InterfaceError))
