"""Transactions on connections of asyncpg."""

from __future__ import annotations

import contextlib
from typing import Any

import asyncpg

from hapax.core.sql import ROLLBACK_TO_SAVEPOINT, SAVEPOINT, SET_NAME, Row, with_placeholders

from .asyncpg_query import is_long, joined_query, with_literals

_IS_OPEN = "SELECT 1 WHERE current_setting('hapax.claim', true) <> ''"
_LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)


class AsyncpgUnit:
    """A transaction on a connection of asyncpg."""

    session = None

    def __init__(self, pool: Any, connection: Any, **settings: Any) -> None:
        self._pool = pool
        self.connection = connection
        self.transaction: Any = None
        self._settings = settings
        self._joined: Any = None

    async def open(self) -> None:
        """Begin."""
        self.transaction = self.connection.transaction()
        await self.transaction.start()

    async def claim(self, sql: str, params: tuple[object, ...]) -> Row:
        """Begin, execute a claim and set the savepoint, all in one query if the key is free."""
        if await self.claim_free(sql, params):
            return ("open", None, None, None, None)
        row = await self.fetch(sql, *params)
        if row[0] == "open":
            # Since the first claim, the other request has released the key.
            await self.run(SAVEPOINT)
        return row

    async def claim_free(self, sql: str, params: tuple[object, ...]) -> bool:
        """Begin, execute a claim and set the savepoint. Return whether the key was free.

        A query of several statements returns no rows, only how many rows its last statement has.
        """
        self.transaction = self.connection.transaction(**self._settings)
        self._joined = joined_query(self.transaction)
        own = getattr(self.connection.get_settings(), "application_name", "")
        # A pool of asyncpg resets the name after each request.
        name = f"{SET_NAME}; " if self._pool is None and not own else ""
        self._joined.after = f"{name}{with_literals(sql, params)}; {SAVEPOINT}; {_IS_OPEN}"
        await self.transaction.start()
        return bool(self._joined.status == "SELECT 1")

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
            await self.transaction.commit()
        finally:
            await self.give_back()

    async def commit_with(self, sql: str, *params: object) -> None:
        """See :meth:`hapax.core.driver.Unit.commit_with`."""
        try:
            await self.end(sql, params)
        finally:
            await self.give_back()

    async def end(self, sql: str, params: tuple[object, ...]) -> None:
        """Execute a statement and commit, in one query unless a value is long.

        The server skips the COMMIT if the statement fails.
        """
        try:
            if self._joined is None or any(is_long(value) for value in params):
                await self.fetch(sql, *params)
            else:
                self._joined.before = f"{with_literals(sql, params)};"
            await self.transaction.commit()
        except BaseException:
            await self.roll_back()
            raise

    async def rollback(self) -> None:
        """See :meth:`hapax.core.driver.Unit.rollback`."""
        try:
            await self.roll_back()
        finally:
            await self.give_back()

    async def roll_back(self) -> None:
        """Roll back. Errors are ignored: nothing was committed."""
        with contextlib.suppress(*_LOST):
            if self.transaction is not None:
                await self.transaction.rollback()
        with contextlib.suppress(*_LOST):
            # A transaction of asyncpg whose BEGIN or COMMIT has failed does not roll back.
            if self.connection.is_in_transaction():
                await self.connection.execute("ROLLBACK")

    async def give_back(self) -> None:
        """Return the connection to its pool, which closes it if it is broken."""
        with contextlib.suppress(*_LOST):
            await self._pool.release(self.connection)


def _placeholder(number: int) -> str:
    return f"${number}"
