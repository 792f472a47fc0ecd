"""Transactions on connections of SQLAlchemy."""

from __future__ import annotations

import contextlib
from typing import Any

from sqlalchemy import exc, text

from hapax.core.driver import commit_apart, done
from hapax.core.sql import ROLLBACK_TO_SAVEPOINT, SAVEPOINT, Row, with_placeholders

from .sqlalchemy_below import Below, below

_JOIN = "create_savepoint"


class AlchemyUnit:
    """A transaction on an ``AsyncConnection`` or a ``Connection``."""

    def __init__(self, connection: Any, maker: Any) -> None:
        self.connection = connection
        self._maker = maker
        self._transaction: Any = None
        self._session: Any = None
        self._below: Below | None = None

    @property
    def session(self) -> Any:
        """The session on the connection, which is created when it is first used."""
        if self._session is None:
            self._session = self._maker(bind=self.connection, join_transaction_mode=_JOIN)
        return self._session

    async def open(self) -> None:
        """Begin, unless a listener of the event `engine_connect` has done so."""
        begun = self.connection.get_transaction()
        self._transaction = begun or await done(self.connection.begin())

    async def claim(self, sql: str, params: tuple[object, ...]) -> Row:
        """Begin, execute a claim and set the savepoint, together if the driver can do so."""
        await self.open()
        self._below = below(self.connection)
        if self._below is not None:
            found = await self._below.claim(sql, params)
            if found is not None:
                return found
        row = await self.fetch(sql, *params)
        await self.run(SAVEPOINT)
        return row

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

    async def commit_with(self, sql: str, *params: object) -> None:
        """See :meth:`hapax.core.driver.Unit.commit_with`."""
        if self._below is None or not self._below.can_end_with(params):
            await commit_apart(self, sql, params)
            return
        try:
            await self._below.end(sql, params)
        except BaseException:
            await self.rollback()
            raise
        # The driver sends no second COMMIT.
        await self.commit()

    async def rollback(self) -> None:
        """See :meth:`hapax.core.driver.Unit.rollback`."""
        try:
            await self._close_session()
            if self._below is not None and not await self._below.roll_back():
                await self._invalidate()
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
