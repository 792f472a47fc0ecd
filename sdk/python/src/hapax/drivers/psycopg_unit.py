"""Transactions on connections of psycopg 3, as coroutines and as functions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from hapax.core.driver import commit_apart, done
from hapax.core.sql import ROLLBACK_TO_SAVEPOINT, SAVEPOINT, SET_NAME, Row, with_placeholders


class PsycopgUnit:
    """A transaction on a connection, which belongs to ``pool`` if that is not ``None``."""

    session = None
    has_pipelines = psycopg.Pipeline.is_supported()
    """Whether the installed libpq can send several statements before it waits."""

    def __init__(self, pool: Any, connection: Any) -> None:
        self._pool = pool
        self.connection = connection
        self._is_async = isinstance(connection, psycopg.AsyncConnection)
        # While it is open, psycopg refuses `connection.commit()` in the handler.
        self._transaction: Any = None
        self._is_open = False
        self._restores_autocommit = False

    async def open(self) -> None:
        """Begin."""
        kind: Any = psycopg.AsyncTransaction if self._is_async else psycopg.Transaction
        self._transaction = kind(self.connection)
        enter = self._transaction.__aenter__ if self._is_async else self._transaction.__enter__
        await done(enter())
        self._is_open = True

    async def claim(self, sql: str, params: tuple[object, ...]) -> Row:
        """Begin, execute a claim and set the savepoint, all in one pipeline."""
        if not self.connection.autocommit:
            # psycopg does not know yet that the BEGIN in the pipeline has begun the transaction, so
            # it would begin one before the claim and wait for its result.
            await done(self.connection.set_autocommit(True))
            self._restores_autocommit = True
        async with self._pipeline():
            await self.open()
            if not self.connection.info.parameter_status("application_name"):
                await self.run(SET_NAME)
            cursor = await self._execute(sql, params)
            await self.run(SAVEPOINT)
        return cast("Row", await done(cursor.fetchone()))

    async def fetch(self, sql: str, *params: object) -> Row:
        """See :meth:`hapax.core.driver.Unit.fetch`."""
        return cast("Row", await done((await self._execute(sql, params)).fetchone()))

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
            await self._leave()
        finally:
            await self.give_back()

    async def commit_with(self, sql: str, *params: object) -> None:
        """See :meth:`hapax.core.driver.Unit.commit_with`."""
        if not PsycopgUnit.has_pipelines:
            await commit_apart(self, sql, params)
            return
        try:
            await self.end(sql, params)
        finally:
            await self.give_back()

    async def end(self, sql: str, params: tuple[object, ...]) -> None:
        """Execute a statement and commit, in one pipeline.

        The server skips the COMMIT if the statement fails.
        """
        try:
            async with self._pipeline():
                await self._execute(sql, params)
                await self._leave()
        except BaseException:
            await self.roll_back()
            raise

    async def rollback(self) -> None:
        """See :meth:`hapax.core.driver.Unit.rollback`."""
        try:
            await self.roll_back()
        finally:
            await self.give_back()

    async def give_back(self) -> None:
        """Return the connection to its pool, which closes it if it is broken."""
        await self.restore()
        await done(self._pool.putconn(self.connection))

    async def restore(self) -> None:
        """Restore the mode of the connection. A connection in the wrong mode is closed."""
        if self._restores_autocommit:
            self._restores_autocommit = False
            try:
                await done(self.connection.set_autocommit(False))
            except psycopg.Error:
                await done(self.connection.close())

    async def roll_back(self) -> None:
        """Roll back. Errors are ignored: nothing was committed."""
        with contextlib.suppress(psycopg.Error):
            if self._is_open:
                await self._leave(psycopg.Rollback(self._transaction))
            elif self.connection.info.transaction_status != TransactionStatus.IDLE:
                await done(self.connection.rollback())

    async def _execute(self, sql: str, params: tuple[object, ...]) -> Any:
        # Not `connection.cursor()`: its class may be one with other placeholders.
        kind: Any = psycopg.AsyncCursor if self._is_async else psycopg.Cursor
        cursor = kind(self.connection, row_factory=tuple_row)
        return await done(cursor.execute(with_placeholders(sql, _placeholder), params))

    @contextlib.asynccontextmanager
    async def _pipeline(self) -> AsyncIterator[None]:
        """Send what is executed in this block without waiting. Its errors are raised at its end."""
        try:
            if self._is_async:
                async with self.connection.pipeline():
                    yield
            else:
                with self.connection.pipeline():
                    yield
        except psycopg.errors.PipelineAborted as aborted:
            # Of the statements after the one that has failed.
            raise _first(aborted) from None

    async def _leave(self, error: BaseException | None = None) -> None:
        self._is_open = False
        leave = self._transaction.__aexit__ if self._is_async else self._transaction.__exit__
        await done(leave(None if error is None else type(error), error, None))


def is_idle(connection: Any) -> bool:
    """Whether no transaction is open."""
    return bool(connection.info.transaction_status == TransactionStatus.IDLE)


def _first(error: BaseException) -> BaseException:
    """Return the error because of which the server has skipped the rest of a pipeline."""
    before = error.__context__
    is_skipped = isinstance(error, psycopg.errors.PipelineAborted)
    return _first(before) if is_skipped and isinstance(before, psycopg.Error) else error


def _placeholder(_: int) -> str:
    return "%s"
