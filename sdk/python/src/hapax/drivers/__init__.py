"""Drivers: what the core needs of psycopg, asyncpg, SQLAlchemy and Django's ORM.

A driver is chosen by the class of the engine, and its module is imported only then. So the package
depends on none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from hapax.core.driver import Driver, Unit
from hapax.core.errors import EngineError

_MODULES = {
    "psycopg_pool": "hapax.drivers.psycopg",
    "psycopg": "hapax.drivers.psycopg",
    "asyncpg": "hapax.drivers.asyncpg",
    "sqlalchemy": "hapax.drivers.sqlalchemy",
    "django": "hapax.drivers.django_orm",
    "hapax": "hapax.drivers.django_orm",
}

ENGINES = (
    "pass a psycopg_pool.AsyncConnectionPool or ConnectionPool, an asyncpg.Pool, a SQLAlchemy "
    "AsyncEngine, Engine, async_sessionmaker or sessionmaker"
)
CONNECTIONS = (
    "pass the connection or session on which your transaction is open: of psycopg, asyncpg, "
    "SQLAlchemy or django.db.connection"
)


class DriverModule(Protocol):
    """What a module of this package defines."""

    def driver(self, engine: Any) -> Driver | None:
        """Return a driver for an engine, or ``None`` if it is not one."""

    def joined(self, connection: Any) -> Unit | None:
        """Return the user's open transaction, or ``None`` if it is not a connection.

        Raises:
            EngineError: the connection has no open transaction.
        """


def driver_of(engine: Any) -> Driver:
    """Return the driver of an engine or a pool.

    Raises:
        EngineError: it is neither.
    """
    module = _module(engine)
    driver = module.driver(engine) if module else None
    if driver is None:
        raise EngineError(
            f"Hapax begins a transaction for each request, so it needs an engine or a pool, not "
            f"{_named(engine)}: {ENGINES}"
        )
    return driver


def unit_of(connection: Any) -> Unit:
    """Return the transaction that the user has opened on ``connection``.

    Raises:
        EngineError: it is an engine or a pool, or it has no open transaction.
    """
    module = _module(connection)
    unit = module.joined(connection) if module else None
    if unit is None:
        raise EngineError(
            f"this call belongs to your transaction, which {_named(connection)} is not: "
            f"{CONNECTIONS}"
        )
    return unit


def no_transaction(connection: Any, how: str) -> EngineError:
    """Return the error for a connection without an open transaction."""
    return EngineError(
        f"{_named(connection)} has no open transaction, so the call would be committed apart from "
        f"your statements: {how}"
    )


def _module(value: Any) -> DriverModule | None:
    for kind in type(value).__mro__:
        name = _MODULES.get(kind.__module__.split(".", 1)[0])
        if name is not None:
            module: Any = import_module(name)
            found: DriverModule = module
            return found
    return None


def _named(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__.split('.', 1)[0]}.{kind.__qualname__}"
