"""How often a request waits for the database, and that values in SQL text stay values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy.ext.asyncio import create_async_engine

import hapax
from hapax.core.driver import done
from hapax.core.flow import Flow
from hapax.core.message import Request, Response
from hapax.core.operation import Operation
from hapax.core.stored import Disposition
from hapax.drivers import driver_of
from hapax.drivers.asyncpg_query import LITERAL_MAX, with_literals

from .proxy import Proxy

INSERT = "INSERT INTO shop_order VALUES (gen_random_uuid(), 'demo', 'tea', 1)"
HOSTILE = [
    "'; DROP TABLE shop_order; --",
    "\\'; DROP TABLE shop_order; --",
    "$$; DROP TABLE shop_order; --",
    "%s {} :p1 $1 %(p)s ?",
    "\\x00 \\'\\\\ \\n",
    "\u00e9\u4e2d\U0001f600\u2028\ufeff",
]


@asynccontextmanager
async def psycopg_pool(url: str) -> AsyncIterator[Any]:
    async with AsyncConnectionPool(url, min_size=1, max_size=1) as pool:
        yield pool


@asynccontextmanager
async def psycopg_sync(url: str) -> AsyncIterator[Any]:
    with ConnectionPool(url, min_size=1, max_size=1) as pool:
        yield pool


@asynccontextmanager
async def asyncpg_pool(url: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        yield pool


@asynccontextmanager
async def alchemy_psycopg(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(url.replace("postgres:", "postgresql+psycopg:"), pool_size=1)
    yield engine
    await engine.dispose()


@asynccontextmanager
async def alchemy_asyncpg(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(url.replace("postgres:", "postgresql+asyncpg:"), pool_size=1)
    yield engine
    await engine.dispose()


@asynccontextmanager
async def alchemy_sync(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(url.replace("postgres:", "postgresql+psycopg:"), pool_size=1)
    yield engine
    engine.dispose()


# asyncpg resets a connection that is returned to its pool, after the commit.
ENGINES = [
    (psycopg_pool, 3),
    (psycopg_sync, 3),
    (asyncpg_pool, 4),
    (alchemy_psycopg, 3),
    (alchemy_asyncpg, 3),
    (alchemy_sync, 3),
]


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    parts = psycopg.conninfo.conninfo_to_dict(database)
    proxy = Proxy(str(parts["host"]), int(str(parts.get("port", 5432))))
    yield proxy
    proxy.close()


def through(proxy: Proxy, database: str) -> str:
    parts = psycopg.conninfo.conninfo_to_dict(database)
    return f"postgres://{parts['user']}@127.0.0.1:{proxy.port}/{parts['dbname']}?sslmode=disable"


async def request(
    engine: Any, key: str, tenant: str = "demo", body: bytes = b"ok", kind: str = "event.made"
) -> Response:
    sent = Request("POST", "/a", b"/a", b"", [("idempotency-key", f'"{key}"')], b"")
    flow = Flow(engine, Operation(wait=0), sent, lambda: tenant)
    taken = await flow.begin()
    if taken is not None:
        return taken
    await done(flow.tx.connection.execute(_statement(flow, INSERT)))
    flow.tx._emit(kind, {"text": tenant})
    response = await flow.finish(Response(201, [("x-text", "caf\xe9 '\\ %s")], body))
    await flow.abandon()
    return response


@pytest.mark.parametrize(("opened", "waits"), ENGINES)
def test_a_request_waits_three_times(proxy: Proxy, database: str, opened: Any, waits: int) -> None:
    async def check() -> None:
        url = through(proxy, database)
        if opened is alchemy_asyncpg:
            url = url.replace("sslmode", "ssl")
        async with opened(url) as engine:
            driver = driver_of(engine)
            # The first ones check the contract, and the drivers prepare their statements.
            for number in range(10):
                assert (await request(driver, f"warm {number}")).status == 201
            before = proxy.waits
            assert (await request(driver, "counted")).status == 201
            assert proxy.waits - before == waits
            assert (await request(driver, "counted")).header("idempotency-status") == "replayed"

    asyncio.run(check())


@pytest.mark.parametrize("opened", [opened for opened, _ in ENGINES if opened is not asyncpg_pool])
@pytest.mark.parametrize("own", [None, "shop"])
def test_a_connection_without_a_name_gets_the_one_that_the_doctor_lists(
    database: str, opened: Any, own: str | None
) -> None:
    async def check() -> None:
        url = database
        if own is not None:
            # SQLAlchemy's driver for asyncpg has no such parameter in the URL.
            name = f"ALTER DATABASE {database.rsplit('/', 1)[1]} SET application_name = {own}"
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(name.encode())
        async with opened(url) as engine:
            driver = driver_of(engine)
            # The first request checks the contract, before it claims its key.
            assert (await request(driver, "a")).status == 201
            assert (await request(driver, "b")).status == 201
            with psycopg.connect(database) as connection:
                found = connection.execute(
                    "SELECT application_name FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid() "
                    "AND backend_type = 'client backend'"
                ).fetchall()
            assert found == [(own or f"hapax-python/{hapax.__version__} contract=2",)]

    asyncio.run(check())


@pytest.mark.parametrize("opened", [opened for opened, _ in ENGINES])
def test_hostile_values_are_stored_as_they_are(database: str, opened: Any) -> None:
    async def check() -> None:
        async with opened(database) as engine:
            driver = driver_of(engine)
            for number, text in enumerate(HOSTILE * 2):
                key = text.encode("ascii", "ignore").decode().replace("\\", "\\\\")
                key = f"{number} {key}".replace('"', "")
                body = text.encode() + bytes(range(256))
                for status in ("stored", "replayed"):
                    response = await request(driver, key, text, body)
                    assert response.header("idempotency-status") == status
                    assert (response.status, response.body) == (201, body)
                    assert response.header("x-text") == "caf\xe9 '\\ %s"
            long = b"x" * LITERAL_MAX + b"'\x00"
            assert (await request(driver, "long", body=long)).status == 201
            assert (await request(driver, "long")).body == long

    asyncio.run(check())
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT tenant, operation FROM hapax.idempotency_key").fetchall()
        assert sorted(rows) == sorted((text, "POST /a") for text in [*HOSTILE * 2, "demo"])
        events = connection.execute(
            "SELECT tenant, payload::json ->> 'text' FROM hapax.outbox_event"
        )
        assert set(events) == {(text, text) for text in [*HOSTILE, "demo"]}
        assert connection.execute("SELECT count(*) FROM shop_order").fetchone() == (13,)


@pytest.mark.parametrize("mode", ["on", "off"])
def test_literals_for_asyncpg_are_equal_to_their_values(database: str, mode: str) -> None:
    values: tuple[object, ...] = (*HOSTILE, None, b"", bytes(range(256)), -7, 86400.5, 1e300)
    query = with_literals("SELECT " + ", ".join(["{}"] * len(values)), values)
    with psycopg.connect(database) as connection:
        connection.execute(f"SET standard_conforming_strings = {mode}")
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    assert [float(one) if isinstance(one, str) and one[0] in "81" else one for one in row] == [
        *values
    ]
    with pytest.raises(TypeError):
        with_literals("SELECT {}", (object(),))


@pytest.mark.parametrize("opened", [opened for opened, _ in ENGINES])
def test_a_failed_claim_or_commit_returns_a_clean_connection(database: str, opened: Any) -> None:
    async def check() -> None:
        async with opened(database) as engine:
            driver = driver_of(engine)
            assert (await request(driver, "first")).status == 201
            sent = Request("POST", "/a", b"/a", b"", [("idempotency-key", "k")], b"")
            # A name with NUL: the claim fails.
            flow = Flow(driver, Operation(name="a\0b"), sent, lambda: "demo")
            refused = await flow.begin()
            assert refused is not None
            assert refused.status == 503
            # The event fails, and so the commit.
            assert (await request(driver, "event", kind="a b")).status == 500
            # The handler fails and catches it: the refusal is stored without an effect.
            flow = Flow(driver, Operation(), sent, lambda: "demo")
            assert await flow.begin() is None
            with pytest.raises(Exception, match="division by zero"):
                await done(flow.tx.connection.execute(_statement(flow, "SELECT 1 / 0")))
            flow.tx.disposition = Disposition.WITHOUT_EFFECT
            assert (await flow.finish(Response(409))).header("idempotency-status") == "stored"
            for key in ("event", "last"):
                assert (await request(driver, key)).header("idempotency-status") == "stored"
            await check_clean(engine)

    asyncio.run(check())
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM shop_order").fetchone() == (3,)


async def check_clean(engine: Any) -> None:
    """The pool's only connection is in no transaction, and in its own mode."""
    if isinstance(engine, (AsyncConnectionPool, ConnectionPool)):
        connection = await done(engine.getconn())
        assert connection.autocommit is False
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        await done(engine.putconn(connection))
    elif isinstance(engine, asyncpg.Pool):
        async with engine.acquire() as connection:
            assert not connection.is_in_transaction()
            outer = connection.transaction()
            await outer.start()
            await connection.execute(INSERT)
            await outer.rollback()
    else:
        connection = await done(engine.connect())
        await done(connection.execute(sqlalchemy.text(INSERT)))
        await done(connection.rollback())
        await done(connection.close())


def _statement(flow: Flow, sql: str) -> Any:
    is_alchemy = type(flow.tx.connection).__module__.startswith("sqlalchemy")
    return sqlalchemy.text(sql) if is_alchemy else sql
