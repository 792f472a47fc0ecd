"""A scratch database with the tables of Hapax and the table of the orders."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
from hapax import schema

ORDERS = """
CREATE TABLE orders (id serial PRIMARY KEY, item text NOT NULL, amount integer NOT NULL)"""
COUNTS = """
SELECT (SELECT count(*) FROM orders),
       (SELECT count(*) FROM hapax.idempotency_key),
       (SELECT count(*) FROM hapax.outbox_event)"""
VACUUM = "VACUUM (ANALYZE) orders, hapax.idempotency_key, hapax.outbox_event"
SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "autovacuum",
)


@dataclass(frozen=True)
class Counts:
    """The rows of the tables that requests write."""

    orders: int
    keys: int
    events: int

    def __sub__(self, other: "Counts") -> "Counts":
        return Counts(
            self.orders - other.orders, self.keys - other.keys, self.events - other.events
        )


class Database:
    """A database that exists until the end of :func:`scratch`."""

    def __init__(self, url: str) -> None:
        self.url = url
        schema.migrate(url)
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(ORDERS)

    def counts(self) -> Counts:
        """Return the number of rows of each table."""
        row = self._connection.execute(COUNTS).fetchone()
        assert row is not None
        return Counts(*row)

    def settle(self) -> None:
        """Vacuum the tables and write a checkpoint, so that rounds begin in the same state.

        A server without autovacuum would otherwise have neither statistics nor free space.
        """
        self._connection.execute(VACUUM)
        self._connection.execute("CHECKPOINT")

    def close(self) -> None:
        """Close the connection of the harness."""
        self._connection.close()


@contextmanager
def scratch(server: str, name: str) -> Iterator[Database]:
    """Create a database, and drop it at the end."""
    name = f"hapax_bench_sdk_{name}_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    try:
        database = Database(urlsplit(server)._replace(path=f"/{name}").geturl())
        yield database
        database.close()
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def describe(server: str) -> str:
    """Return the version of the server and the settings on which commits depend."""
    with psycopg.connect(server) as connection:
        (version,) = connection.execute("SHOW server_version").fetchone() or ("",)
        rows = connection.execute(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)",
            (list(SETTINGS),),
        ).fetchall()
    values = dict(rows)
    settings = ", ".join(f"{name} = {values[name]}" for name in SETTINGS)
    return f"PostgreSQL {version}: {settings}"
