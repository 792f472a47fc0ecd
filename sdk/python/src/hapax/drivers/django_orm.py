"""Django's ORM: the connection of the current thread to one of the databases."""

from __future__ import annotations

from typing import Any, cast

from django.db import InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error

from hapax.core.driver import Driver, Failure, Pause, Unit, classify
from hapax.core.errors import EngineError
from hapax.core.sql import Row

from . import no_transaction
from .django_unit import DjangoUnit


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
        unit = self._unit()
        unit.open()
        return unit

    async def claim(self, sql: str, *params: object) -> tuple[Unit, Row]:
        """See :meth:`hapax.core.driver.Driver.claim`."""
        unit = self._unit()
        unit.open()
        try:
            return unit, unit.claim(sql, params)
        except BaseException:
            await unit.rollback()
            raise

    def _unit(self) -> DjangoUnit:
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
        return DjangoUnit(self.alias)

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


def _is_test(connection: BaseDatabaseWrapper) -> bool:
    """Whether the transaction is the one that ``django.test.TestCase`` opens around a test."""
    return bool(getattr(connection, "_from_testcase", False)) or any(
        getattr(block, "_from_testcase", False) for block in connection.atomic_blocks
    )
