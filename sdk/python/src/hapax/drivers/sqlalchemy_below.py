"""The transaction of a driver below SQLAlchemy.

SQLAlchemy waits for the result of each statement. psycopg and asyncpg begin and claim in one round
trip, and commit in one. SQLAlchemy's own transaction sends BEGIN with its first statement, unless
the driver is in a transaction already, and COMMIT only if it still is.
"""

from __future__ import annotations

from typing import Any, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from hapax.core.driver import Failure
from hapax.core.sql import Row

from .asyncpg_query import is_long


def below(connection: Any) -> Below | None:
    """Return the transaction below a connection, or ``None`` if its driver has no such one."""
    sync: Any = connection
    if isinstance(connection, AsyncConnection):
        sync = connection.sync_connection
    adapter, raw = sync.connection.dbapi_connection, sync.connection.driver_connection
    name = type(raw).__module__.split(".", 1)[0]
    if name == "psycopg":
        from .psycopg_unit import PsycopgUnit, is_idle

        # A listener of SQLAlchemy's events may have executed a statement already.
        is_usable = PsycopgUnit.has_pipelines and not raw.autocommit and is_idle(raw)
        return PsycopgBelow(PsycopgUnit(None, raw)) if is_usable else None
    if name == "asyncpg" and getattr(adapter, "_transaction", raw) is None:
        from .asyncpg_unit import AsyncpgUnit

        if adapter.isolation_level == "autocommit":
            return None
        names = {"isolation": "isolation_level", "readonly": "readonly", "deferrable": "deferrable"}
        settings = {name: getattr(adapter, of) for name, of in names.items()}
        return AsyncpgBelow(AsyncpgUnit(None, raw, **settings), adapter)
    return None


def failure_below(error: BaseException) -> Failure | None:
    """Return what an error of a driver means, or ``None`` if it is not one."""
    name = type(error).__module__.split(".", 1)[0]
    if name == "psycopg":
        from . import psycopg

        return psycopg.failure(error)
    if name == "asyncpg":
        from . import asyncpg

        return asyncpg.failure(error)
    return None


class Below(Protocol):
    """The transaction of a driver."""

    async def claim(self, sql: str, params: tuple[object, ...]) -> Row | None:
        """Begin, and execute a claim and set the savepoint. ``None``: SQLAlchemy has to do both."""

    def can_end_with(self, params: tuple[object, ...]) -> bool:
        """Whether :meth:`end` can send these values."""

    async def end(self, sql: str, params: tuple[object, ...]) -> None:
        """Execute a statement and commit."""

    async def roll_back(self) -> bool:
        """Roll back. Errors are ignored: nothing was committed.

        Returns:
            Whether the connection is still usable. SQLAlchemy does not notice that it is not.
        """


class PsycopgBelow:
    """The transaction of psycopg."""

    def __init__(self, unit: Any) -> None:
        self._unit = unit

    async def claim(self, sql: str, params: tuple[object, ...]) -> Row | None:
        """See :meth:`Below.claim`."""
        row: Row = await self._unit.claim(sql, params)
        return row

    def can_end_with(self, _: tuple[object, ...]) -> bool:
        """See :meth:`Below.can_end_with`."""
        return True

    async def end(self, sql: str, params: tuple[object, ...]) -> None:
        """See :meth:`Below.end`."""
        await self._unit.end(sql, params)
        await self._unit.restore()

    async def roll_back(self) -> bool:
        """See :meth:`Below.roll_back`."""
        await self._unit.roll_back()
        await self._unit.restore()
        return not self._unit.connection.closed


class AsyncpgBelow:
    """The transaction of asyncpg.

    Args:
        unit: the transaction.
        adapter: SQLAlchemy's connection. It must know of the transaction, because it would set a
            savepoint in it before its first statement.
    """

    def __init__(self, unit: Any, adapter: Any) -> None:
        self._unit = unit
        self._adapter = adapter

    async def claim(self, sql: str, params: tuple[object, ...]) -> Row | None:
        """See :meth:`Below.claim`."""
        is_free = await self._unit.claim_free(sql, params)
        self._tell(is_open=True)
        return ("open", None, None, None, None) if is_free else None

    def can_end_with(self, params: tuple[object, ...]) -> bool:
        """See :meth:`Below.can_end_with`."""
        return not any(map(is_long, params))

    async def end(self, sql: str, params: tuple[object, ...]) -> None:
        """See :meth:`Below.end`."""
        self._tell(is_open=False)
        await self._unit.end(sql, params)

    async def roll_back(self) -> bool:
        """See :meth:`Below.roll_back`."""
        self._tell(is_open=False)
        await self._unit.roll_back()
        return not self._unit.connection.is_closed()

    def _tell(self, *, is_open: bool) -> None:
        self._adapter._transaction = self._unit.transaction if is_open else None
        if hasattr(self._adapter, "_started"):
            # Before version 2.1 of SQLAlchemy.
            self._adapter._started = is_open
