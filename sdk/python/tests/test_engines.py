"""Which engines and connections are accepted, and what the refusals say."""

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from hapax import ContractError, EngineError
from hapax.core import wsgi
from hapax.core.driver import run_blocking
from hapax.core.flow import Flow
from hapax.core.message import Request, Response
from hapax.core.operation import Operation
from hapax.drivers import driver_of, unit_of
from hapax.flask import Hapax
from hapax.inbox import Message, SyncInbox

from .conftest import admin, url_of


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database) as opened:
        yield opened


def alchemy(url: str, driver: str = "psycopg") -> str:
    return url.replace("postgres://", f"postgresql+{driver}://")


def send(engine: Any, key: str = "k", view: Any = None) -> Response:
    request = Request("POST", "/a", b"/a", b"", [("idempotency-key", key)], b"")
    view = view or (lambda tx: Response(201))
    return wsgi.run(driver_of(engine), Operation(), request, lambda: "ann", view, lambda _: False)


@pytest.mark.parametrize("value", [None, "postgres://", object(), 7])
def test_a_value_that_is_not_an_engine_is_refused_with_a_list_of_engines(value: Any) -> None:
    with pytest.raises(EngineError, match=r"pass a psycopg_pool\.AsyncConnectionPool"):
        Hapax(value)


def test_a_connection_is_not_an_engine(connection: psycopg.Connection) -> None:
    with pytest.raises(EngineError, match=r"needs an engine or a pool, not psycopg\.Connection"):
        driver_of(connection)


def test_a_session_maker_without_an_engine_is_refused() -> None:
    for maker in (sessionmaker(), async_sessionmaker()):
        with pytest.raises(EngineError, match="bind=engine"):
            driver_of(maker)


def test_an_asynchronous_engine_is_refused_where_a_view_runs_in_a_thread(database: str) -> None:
    pool = AsyncConnectionPool(database, open=False)
    with pytest.raises(EngineError, match=r"pass a psycopg_pool\.ConnectionPool"):
        send(pool)


def test_a_pool_is_not_a_transaction(database: str) -> None:
    pool = ConnectionPool(database, open=False)
    engine = sqlalchemy.create_engine(alchemy(database))
    for value in (pool, AsyncConnectionPool(database, open=False), engine, None):
        with pytest.raises(EngineError, match="pass the connection or session on which your"):
            unit_of(value)
    engine.dispose()


def test_a_connection_without_a_transaction_is_refused(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        with pytest.raises(EngineError, match=r"connection\.transaction\(\)"):
            unit_of(connection)
        with connection.transaction():
            unit_of(connection)
    engine = sqlalchemy.create_engine(alchemy(database))
    with engine.connect() as opened, pytest.raises(EngineError, match=r"engine\.begin\(\)"):
        unit_of(opened)
    with engine.begin() as begun:
        assert run_blocking(unit_of(begun).fetch("SELECT 1")) == (1,)
    with Session(engine) as session:
        assert run_blocking(unit_of(session).fetch("SELECT 1")) == (1,)
    engine.dispose()


def test_a_connection_of_asyncpg_without_a_transaction_is_refused(database: str) -> None:
    async def check() -> None:
        connection = await asyncpg.connect(database)
        with pytest.raises(EngineError, match=r"connection\.transaction\(\)"):
            unit_of(connection)
        async with connection.transaction():
            assert await unit_of(connection).fetch("SELECT 1") == (1,)
        await connection.close()

    asyncio.run(check())


def test_an_engine_in_autocommit_mode_runs_no_handler(database: str) -> None:
    engine = sqlalchemy.create_engine(alchemy(database), isolation_level="AUTOCOMMIT")
    calls: list[Any] = []
    response = send(engine, view=lambda tx: calls.append(tx) or Response(201))
    assert (response.status, calls) == (503, [])
    engine.dispose()


def test_the_handler_cannot_commit_the_connection_of_psycopg(database: str) -> None:
    def view(tx: Any) -> Response:
        tx.connection.commit()
        return Response(201)

    with ConnectionPool(database, open=True) as pool:
        response = send(pool, view=view)
    assert response.status == 500


def test_a_handler_that_has_committed_gets_no_success(database: str) -> None:
    engine = sqlalchemy.create_engine(alchemy(database))

    def view(tx: Any) -> Response:
        tx.connection.commit()
        return Response(201)

    response = send(engine, view=view)
    assert response.status == 500
    assert b"it must neither commit nor roll back" in response.body
    engine.dispose()


def test_a_session_may_commit_and_roll_back_its_savepoint(database: str) -> None:
    engine = sqlalchemy.create_engine(alchemy(database))
    insert = sqlalchemy.text("INSERT INTO ledger_entry VALUES ('s', :amount)")

    def view(tx: Any) -> Response:
        tx.session.execute(insert, {"amount": 1})
        tx.session.commit()
        tx.session.execute(insert, {"amount": 2})
        tx.session.rollback()
        tx.session.execute(insert, {"amount": 3})
        return Response(201)

    assert send(sessionmaker(engine), view=view).status == 201
    assert send(engine, "l", view=lambda tx: (view(tx), Response(409))[1]).status == 409
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT amount FROM ledger_entry ORDER BY amount").fetchall()
    assert rows == [(1,), (3,)]
    engine.dispose()


def test_a_database_without_the_contract_is_refused_by_its_version(
    template: str, caplog: pytest.LogCaptureFixture
) -> None:
    empty = f"{template}_empty"
    admin(f"CREATE DATABASE {empty}")
    try:
        with ConnectionPool(url_of(empty), open=True) as pool:
            response = send(pool)
            assert response.status == 503
            assert str(ContractError(None)) in caplog.text
            assert "version 2" in caplog.text
            with pool.connection() as connection:
                connection.execute("CREATE SCHEMA hapax")
                connection.execute(
                    "CREATE FUNCTION hapax.contract_version() RETURNS int LANGUAGE sql RETURN 1"
                )
            caplog.clear()
            assert send(pool).status == 503
            assert "the database has version 1" in caplog.text
    finally:
        admin(f"DROP DATABASE {empty} WITH (FORCE)")


def test_an_asynchronous_session_maker_is_an_engine(database: str) -> None:
    assert driver_of(async_sessionmaker(create_async_engine(alchemy(database)))).is_async


def test_a_role_without_tables_uses_the_schema_hapax_api(template: str, database: str) -> None:
    role = f"{template}_role"
    admin(f"CREATE ROLE {role} LOGIN")
    try:
        with psycopg.connect(database) as owner:
            owner.execute(f"GRANT USAGE ON SCHEMA hapax_api TO {role}")
            owner.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA hapax_api TO {role}")
        url = database.replace("postgres://postgres", f"postgres://{role}")

        def view(tx: Any) -> Response:
            tx.emit("order.created", {})
            return Response(201)

        with ConnectionPool(url, open=True) as pool:
            driver = driver_of(pool)
            request = Request("POST", "/a", b"/a", b"", [("idempotency-key", "k")], b"")
            for schema, status in (("hapax_api", 201), ("hapax_api", 201), ("hapax", 503)):
                operation = Operation(schema=schema)
                found = wsgi.run(driver, operation, request, lambda: "ann", view, lambda _: False)
                assert found.status == status
            inbox = SyncInbox("ledger", {}, schema="hapax_api")
            with pool.connection() as connection:
                inbox.accept(connection, Message("bank", "evt", b""))
                inbox.processed(connection, Message("bank", "evt", b""))
        with psycopg.connect(database) as owner:
            owner.execute(f"DROP OWNED BY {role}")
    finally:
        admin(f"DROP ROLE {role}")


def test_an_error_of_the_program_is_not_taken_for_one_of_the_database(database: str) -> None:
    engine = sqlalchemy.create_engine(alchemy(database))
    pool = ConnectionPool(database, open=True)

    def view(tx: Any) -> Response:
        raise FileNotFoundError("a file of the service")

    for value in (engine, pool):
        with pytest.raises(FileNotFoundError):
            send(value, view=view)
    asynchronous = (create_async_engine(alchemy(database, "asyncpg")),)
    assert [driver_of(value).failure(FileNotFoundError()) for value in asynchronous] == [None]
    pool.close()
    engine.dispose()


@pytest.mark.parametrize("host", ["127.0.0.1:1", "does-not-exist.invalid"])
def test_a_database_that_cannot_be_reached_is_unavailable(host: str) -> None:
    async def claim(engine: Any) -> Response | None:
        request = Request("POST", "/a", b"/a", b"", [("idempotency-key", "k")], b"")
        return await Flow(driver_of(engine), Operation(), request, lambda: "ann").begin()

    async def check() -> None:
        for driver in ("asyncpg", "psycopg"):
            engine = create_async_engine(f"postgresql+{driver}://nobody@{host}/none")
            response = await claim(engine)
            assert response is not None
            assert response.status == 503
            await engine.dispose()
        pool = await asyncpg.create_pool(f"postgres://nobody@{host}/none", min_size=0)
        response = await claim(pool)
        assert response is not None
        assert response.status == 503

    asyncio.run(check())
