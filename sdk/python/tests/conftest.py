"""Databases, services and the proxy of the tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from hapax import schema

from .phased_kit import DRIVERS, Kit
from .proxy import Proxy

HERE = Path(__file__).parent
SERVER = os.environ.get("DATABASE_URL", "postgres://postgres@127.0.0.1:5432/")
DEADLINE = 60.0


def url_of(database: str) -> str:
    """Return the URL of a database of the server."""
    parts = psycopg.conninfo.conninfo_to_dict(SERVER)
    login = parts.get("user", "postgres")
    if parts.get("password"):
        login += f":{parts['password']}"
    return f"postgres://{login}@{parts['host']}:{parts.get('port', 5432)}/{database}"


def admin(sql: str) -> None:
    """Execute a statement on the server."""
    with psycopg.connect(SERVER, autocommit=True) as connection:
        connection.execute(sql)


@pytest.fixture(scope="session")
def template() -> Iterator[str]:
    """A database with the schema of Hapax and the tables of the tests."""
    name = f"hapax_py_{uuid.uuid4().hex[:12]}"
    admin(f"CREATE DATABASE {name}")
    assert schema.migrate(url_of(name))
    assert schema.migrate(url_of(name)) == []
    with psycopg.connect(url_of(name), autocommit=True) as connection:
        connection.execute((HERE / "services/schema.sql").read_bytes())
    yield name
    admin(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def copy_of(template: str) -> Iterator[str]:
    """Create an empty copy of the template, and yield its URL."""
    name = f"{template}_{uuid.uuid4().hex[:8]}"
    admin(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield url_of(name)
    finally:
        admin(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database(template: str) -> Iterator[str]:
    """The URL of an empty database."""
    with copy_of(template) as url:
        yield url


@pytest.fixture(scope="module")
def shared(template: str) -> Iterator[str]:
    """The URL of a database that the tests of a module share."""
    with copy_of(template) as url:
        yield url


@pytest.fixture(params=DRIVERS)
def kit(request: pytest.FixtureRequest, shared: str) -> Iterator[Kit]:
    """Requests in phases, with each driver."""
    opened = Kit(request.param, shared)
    yield opened
    opened.close()


@pytest.fixture
def key() -> str:
    """A new key."""
    return str(uuid.uuid4())


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"it did not happen in {DEADLINE} s: {what}"
        time.sleep(0.01)


class Service:
    """A server process, which reaches its database through a proxy."""

    def __init__(self, framework: str, driver: str, database: str, **environment: str) -> None:
        self.framework, self.driver, self.database = framework, driver, database
        self.environment = environment
        parts = psycopg.conninfo.conninfo_to_dict(database)
        self.proxy = Proxy(str(parts["host"]), int(str(parts.get("port", 5432))))
        self.db = psycopg.connect(database, autocommit=True)
        self.process: subprocess.Popen[bytes] | None = None
        self.client = httpx.Client(timeout=DEADLINE)
        self.start()

    def start(self) -> None:
        """Start the process and wait until it accepts connections."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        parts = psycopg.conninfo.conninfo_to_dict(self.database)
        through = f"postgres://{parts['user']}@127.0.0.1:{self.proxy.port}/{parts['dbname']}"
        environment = os.environ | {"DATABASE_URL": through, "DRIVER": self.driver}
        environment |= self.environment
        environment["PGSSLMODE"] = "disable"
        command = [sys.executable, "-m", "tests.services.serve", self.framework, str(self.port)]
        self.process = subprocess.Popen(command, cwd=HERE.parent, env=environment)
        until(self.is_up, "the service accepts connections")

    def is_up(self) -> bool:
        """Whether the process accepts connections."""
        assert self.process is not None
        assert self.process.poll() is None, "the service has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """End the process and the connections."""
        self.kill()
        self.client.close()
        self.db.close()
        self.proxy.close()

    @property
    def url(self) -> str:
        """The address of the service."""
        return f"http://127.0.0.1:{self.port}"

    def post(
        self, key: str | None, item: str = "tea", amount: int = 1, **headers: str
    ) -> httpx.Response:
        """Send an order."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["Idempotency-Key"] = key
        body = {"item": item, "amount": amount}
        return self.client.post(f"{self.url}/orders", json=body, headers=sent)

    def count(self, sql: str, *params: object) -> int:
        """Return the only value of a query."""
        row = self.db.execute(sql, params).fetchone()
        assert row is not None
        return int(row[0])

    def orders(self, item: str) -> int:
        """Count the orders of an item."""
        return self.count("SELECT count(*) FROM shop_order WHERE item = %s", item)

    def events(self) -> int:
        """Count all events."""
        return self.count("SELECT count(*) FROM hapax.outbox_event")

    def waiting(self) -> int:
        """Count the transactions that wait for the lock of the tests."""
        return self.count(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 "
            "AND NOT granted AND database = (SELECT oid FROM pg_database WHERE "
            "datname = current_database())"
        )
