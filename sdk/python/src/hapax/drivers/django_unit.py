"""Transactions on Django's connection of the current thread."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, cast

from django.db import DatabaseError, InterfaceError, connections, transaction

from hapax.core.driver import commit_apart
from hapax.core.sql import ROLLBACK_TO_SAVEPOINT, SAVEPOINT, SET_NAME, Row, with_placeholders

try:
    from psycopg import ClientCursor
    from psycopg.pq import TransactionStatus
except ImportError:  # pragma: no cover - Django uses psycopg2
    ClientCursor = None  # type: ignore[assignment,misc]


log = logging.getLogger("hapax")


class DjangoUnit:
    """A transaction on the connection of the current thread."""

    session = None

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._atomic: Any = None
        self._is_outermost = False
        self._joins = False
        self._hooks_before = 0

    @property
    def connection(self) -> Any:
        """The connection, on which the ORM works too."""
        return connections[self.alias]

    def open(self) -> None:
        """Begin. Django sends nothing yet."""
        connection = self.connection
        self._is_outermost = not connection.in_atomic_block and connection.get_autocommit()
        self._hooks_before = len(connection.run_on_commit)
        self._atomic = transaction.atomic(using=self.alias)
        self._atomic.__enter__()

    def claim(self, sql: str, params: tuple[object, ...]) -> Row:
        """Execute a claim and set the savepoint, together with ``BEGIN`` if that is possible."""
        claim = with_placeholders(sql, _placeholder)
        connection = self.connection
        with connection.cursor() as cursor:
            self._joins = self._is_outermost and _joins_statements(connection, cursor)
            if self._joins:
                # psycopg would send its own BEGIN and wait for its result. Django restores this
                # mode at the end of the transaction.
                connection.connection.autocommit = True
                begin = "BEGIN"
                if not connection.connection.info.parameter_status("application_name"):
                    begin += f"; {SET_NAME}"
                cursor.execute(f"{begin}; {claim}; {SAVEPOINT}", params)
                # Otherwise Django would let its server-side cursors outlive the transaction.
                connection.connection._autocommit = False
                while cursor.description is None:
                    cursor.nextset()
                return cast("Row", cursor.fetchone())
            cursor.execute(claim, params)
            row = cast("Row", cursor.fetchone())
            cursor.execute(SAVEPOINT)
            return row

    async def fetch(self, sql: str, *params: object) -> Row:
        """See :meth:`hapax.core.driver.Unit.fetch`."""
        with self.connection.cursor() as cursor:
            cursor.execute(with_placeholders(sql, _placeholder), params)
            return cast("Row", cursor.fetchone())

    async def run(self, sql: str) -> None:
        """See :meth:`hapax.core.driver.Unit.run`."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql)

    async def flush(self) -> None:
        """There is nothing to write."""

    async def discard(self) -> None:
        """See :meth:`hapax.core.driver.Unit.discard`."""
        # An error that the view has caught has marked the transaction as broken. The savepoint
        # repairs it.
        connection = self.connection
        transaction.set_rollback(False, using=self.alias)
        await self.run(ROLLBACK_TO_SAVEPOINT)
        # Functions that the view has passed to `on_commit` belong to its work.
        connection.run_on_commit = connection.run_on_commit[: self._hooks_before]

    async def commit(self) -> None:
        """See :meth:`hapax.core.driver.Unit.commit`."""
        connection = self.connection
        hooks = connection.run_on_commit
        if self._is_outermost:
            connection.run_on_commit = []
        self._atomic.__exit__(None, None, None)
        if self._is_outermost and hooks:
            connection.run_on_commit = hooks
            try:
                connection.run_and_clear_commit_hooks()
            except Exception:
                # The response is committed, and a retry receives it too.
                log.exception("a function that was passed to on_commit has failed")

    async def commit_with(self, sql: str, *params: object) -> None:
        """See :meth:`hapax.core.driver.Unit.commit_with`."""
        if not self._joins:
            await commit_apart(self, sql, params)
            return
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(f"{with_placeholders(sql, _placeholder)}; COMMIT", params)
        except BaseException:
            await self.rollback()
            raise
        # psycopg sends no second COMMIT.
        await self.commit()

    async def rollback(self) -> None:
        """See :meth:`hapax.core.driver.Unit.rollback`."""
        with contextlib.suppress(DatabaseError, InterfaceError):
            transaction.set_rollback(True, using=self.alias)
            self._atomic.__exit__(None, None, None)


def _placeholder(_: int) -> str:
    return "%s"


def _joins_statements(connection: Any, cursor: Any) -> bool:
    """Whether several statements can be sent together."""
    raw = connection.connection
    # psycopg writes the values into the text, and no setting asks for another BEGIN. A wrapper of
    # `execute_wrapper` may have executed a statement already.
    return (
        ClientCursor is not None
        and isinstance(cursor.cursor, ClientCursor)
        and raw.info.transaction_status == TransactionStatus.IDLE
        and raw.isolation_level is raw.read_only is raw.deferrable is None
    )
