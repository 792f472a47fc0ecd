"""Django's ORM: the connection of the current thread to one of the databases."""

from __future__ import annotations

import contextlib
from typing import Any, cast

from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error

from hapax.core.driver import Driver, Failure, Pause, Unit, classify
from hapax.core.errors import EngineError
from hapax.core.sql import ROLLBACK_TO_SAVEPOINT, Row, with_placeholders

from . import no_transaction


def driver(engine: Any) -> Driver | None:
    """Return a :class:`DjangoDriver`, which :class:`hapax.django.Hapax` creates."""
    return engine if isinstance(engine, DjangoDriver) else None


def joined(connection: Any) -> Unit | None:
    """Return the open transaction of a connection."""
    if type(connection).__name__ == "ConnectionProxy":
        connection = connections[connection._alias]
    if not isinstance(connection, BaseDatabaseWrapper):
        return None
    if not connection.in_atomic_block:
        raise no_transaction(connection, "open one with django.db.transaction.atomic()")
    return cast("Unit", DjangoUnit(connection.alias))


class DjangoDriver:
    """A database of ``settings.DATABASES``.

    Args:
        alias: the alias of the database.
    """

    is_async = False
    contract_checked = False

    def __init__(self, alias: str) -> None:
        self.alias = alias

    async def begin(self) -> Unit:
        """See :meth:`hapax.core.driver.Driver.begin`."""
        connection = connections[self.alias]
        if connection.vendor != "postgresql":
            raise EngineError(
                f"the database {self.alias!r} is not PostgreSQL, in which the keys of Hapax are"
            )
        if connection.in_atomic_block and not _is_test(connection):
            raise EngineError(
                "Hapax begins and commits the transaction of each request, and one is open "
                "already: set ATOMIC_REQUESTS to False, or do not call the view in atomic()"
            )
        unit = DjangoUnit(self.alias)
        unit.open()
        return unit

    async def sleep(self, seconds: float) -> None:
        """See :meth:`hapax.core.driver.Driver.sleep`."""
        connection = connections[self.alias]
        if connection.settings_dict["OPTIONS"].get("pool") and not connection.in_atomic_block:
            # Returns the connection to the pool.
            connection.close()
        await Pause(seconds)

    def failure(self, error: BaseException) -> Failure | None:
        """See :meth:`hapax.core.driver.Driver.failure`."""
        if not isinstance(error, Error):
            return None
        cause = error.__cause__
        sqlstate = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if sqlstate is None:
            is_lost = isinstance(error, (OperationalError, InterfaceError))
            return classify(None if is_lost else "XX000")
        return classify(sqlstate, getattr(getattr(cause, "diag", None), "constraint_name", None))


class DjangoUnit:
    """A transaction on the connection of the current thread."""

    session = None

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._atomic: Any = None

    @property
    def connection(self) -> Any:
        """The connection, on which the ORM works too."""
        return connections[self.alias]

    def open(self) -> None:
        """Begin."""
        self._atomic = transaction.atomic(using=self.alias)
        self._atomic.__enter__()

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
        transaction.set_rollback(False, using=self.alias)
        await self.run(ROLLBACK_TO_SAVEPOINT)

    async def commit(self) -> None:
        """See :meth:`hapax.core.driver.Unit.commit`."""
        self._atomic.__exit__(None, None, None)

    async def rollback(self) -> None:
        """See :meth:`hapax.core.driver.Unit.rollback`."""
        with contextlib.suppress(DatabaseError, InterfaceError):
            transaction.set_rollback(True, using=self.alias)
            self._atomic.__exit__(None, None, None)


def _placeholder(_: int) -> str:
    return "%s"


def _is_test(connection: BaseDatabaseWrapper) -> bool:
    """Whether the transaction is the one that ``django.test.TestCase`` opens around a test."""
    return bool(getattr(connection, "_from_testcase", False)) or any(
        getattr(block, "_from_testcase", False) for block in connection.atomic_blocks
    )
