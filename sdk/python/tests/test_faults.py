"""Transactions that a handler or the server has broken, and engines with listeners of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import django
import psycopg
import pytest
import sqlalchemy
from django.conf import settings
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

from hapax.core import wsgi
from hapax.core.driver import Driver, done, run_blocking
from hapax.core.flow import Flow
from hapax.core.message import Request, Response
from hapax.core.operation import Operation
from hapax.drivers import driver_of

from .conftest import copy_of
from .test_round_trips import ENGINES, INSERT, _statement

OPTIONAL = Operation(key="optional", wait=0)


def request_of(key: str | None) -> Request:
    headers = [] if key is None else [("idempotency-key", key)]
    return Request("POST", "/a", b"/a", b"", headers, b"")


def orders(database: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT count(*) FROM shop_order").fetchone()
    assert row is not None
    return int(row[0])


async def post(driver: Driver, key: str | None, statement: str, failing: str = "") -> Response:
    flow = Flow(driver, OPTIONAL, request_of(key), lambda: "demo")
    taken = await flow.begin()
    if taken is not None:
        return taken
    await done(flow.tx.connection.execute(_statement(flow, statement)))
    if failing:
        with pytest.raises(Exception, match="division by zero"):
            await done(flow.tx.connection.execute(_statement(flow, failing)))
    response = await flow.finish(Response(201))
    await flow.abandon()
    return response


@pytest.mark.parametrize("opened", [opened for opened, _ in ENGINES])
def test_a_transaction_that_the_server_rolls_back_is_not_confirmed(
    database: str, opened: Any
) -> None:
    async def check() -> None:
        async with opened(database) as engine:
            for key in (None, "k"):
                response = await post(driver_of(engine), key, INSERT, "SELECT 1 / 0")
                assert response.status == 500, response.body
                assert b"INTERNAL.statement" in response.body
            response = await post(driver_of(engine), None, INSERT)
            assert response.header("idempotency-status") == "bypassed"

    asyncio.run(check())
    assert orders(database) == 1


def test_a_pool_may_have_cursors_with_other_placeholders(database: str) -> None:
    async def check() -> None:
        options = {"cursor_factory": psycopg.AsyncRawCursor}
        async with AsyncConnectionPool(database, min_size=1, max_size=1, kwargs=options) as pool:
            assert (await post(driver_of(pool), "k", INSERT)).status == 201

    asyncio.run(check())
    sync = {"cursor_factory": psycopg.RawCursor}
    with ConnectionPool(database, min_size=1, max_size=1, kwargs=sync) as pool:
        assert run_blocking(post(driver_of(pool), "l", INSERT)).status == 201


@pytest.mark.parametrize("name", ["begin", "engine_connect", "checkout"])
@pytest.mark.parametrize("below", ["psycopg", "asyncpg"])
def test_a_listener_of_sqlalchemy_may_execute_a_statement(
    database: str, name: str, below: str
) -> None:
    def execute(connection: Any, *_: Any) -> None:
        if name == "checkout":
            connection.cursor().execute("SET lock_timeout = '5s'")
        else:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '5s'")

    async def check() -> None:
        engine = create_async_engine(database.replace("postgres:", f"postgresql+{below}:"))
        event.listen(engine.sync_engine, name, execute)
        first = await post(driver_of(engine), "k", INSERT)
        assert first.header("idempotency-status") == "stored", first.body
        replay = await post(driver_of(engine), "k", INSERT)
        assert replay.header("idempotency-status") == "replayed"
        await engine.dispose()

    asyncio.run(check())
    assert orders(database) == 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("below", ["psycopg", "asyncpg"])
def test_a_handler_that_ends_the_transaction_of_sqlalchemy_is_final(
    database: str, end: str, below: str
) -> None:
    async def check() -> None:
        engine = create_async_engine(database.replace("postgres:", f"postgresql+{below}:"))
        flow = Flow(driver_of(engine), OPTIONAL, request_of("k"), lambda: "demo")
        assert await flow.begin() is None
        await flow.tx.connection.execute(sqlalchemy.text(INSERT))
        try:
            await getattr(flow.tx.connection, end)()
            response = await flow.finish(Response(201))
        except sqlalchemy.exc.ProgrammingError as error:
            # psycopg refuses it.
            response = await flow.fail(error)
        assert response.status == 500
        assert b"has ended the transaction" in response.body
        await flow.abandon()
        assert (await post(driver_of(engine), "l", INSERT)).status == 201
        await engine.dispose()

    asyncio.run(check())


def test_a_claim_with_a_snapshot_that_is_too_old_is_repeated(database: str) -> None:
    async def check() -> None:
        async with AsyncConnectionPool(database, min_size=1, max_size=1) as pool:
            driver = driver_of(pool)
            claim, failures = driver.claim, [psycopg.errors.SerializationFailure()]

            async def claim_late(*params: Any) -> Any:
                if failures:
                    raise failures.pop()
                return await claim(*params)

            driver.claim = claim_late  # type: ignore[method-assign]
            flow = Flow(driver, Operation(wait=10), request_of("k"), lambda: "demo")
            assert await flow.begin() is None
            await flow.abandon()

    asyncio.run(check())


@pytest.fixture(scope="module")
def orm(template: str) -> Iterator[Any]:
    """Django on a database of its own. It can be configured once in a process."""
    with copy_of(template) as url:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
        known = {name: parts[of] for name, of in names.items() if of in parts}
        known |= {"PASSWORD": parts["password"]} if "password" in parts else {}
        default = {"ENGINE": "django.db.backends.postgresql", **known}
        settings.configure(DATABASES={"default": default}, LOGGING_CONFIG=None)
        django.setup()
        from django.db import connection, models

        class Order(models.Model):
            id = models.TextField(primary_key=True)
            tenant = models.TextField(default="demo")
            item = models.TextField(default="tea")
            amount = models.BigIntegerField(default=1)

            class Meta:
                app_label = "shop"
                db_table = "shop_order"
                managed = False

        yield Order.objects  # type: ignore[attr-defined]
        connection.close()


def post_django(key: str | None, view: Callable[[Any], Response]) -> Response:
    from hapax.drivers.django_orm import DjangoDriver

    return wsgi.run(
        DjangoDriver("default"),
        OPTIONAL,
        request_of(key),
        lambda: "demo",
        view,
        lambda _: False,
    )


def test_functions_of_on_commit_belong_to_the_work_of_the_view(orm: Any) -> None:
    from django.db import transaction

    ran: list[str] = []

    def view(status: int) -> Callable[[Any], Response]:
        def order(_: Any) -> Response:
            orm.create(id=f"hook {status}")
            transaction.on_commit(lambda: ran.append(f"{status}"))
            return Response(status)

        return order

    assert post_django("refused", view(409)).header("idempotency-status") == "stored"
    assert ran == []
    assert post_django("made", view(201)).header("idempotency-status") == "stored"
    assert ran == ["201"]
    assert [each.id for each in orm.filter(id__startswith="hook")] == ["hook 201"]


@pytest.mark.parametrize("key", ["hook", None])
def test_an_error_of_on_commit_does_not_deny_the_commit(
    orm: Any, key: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    from django.db import IntegrityError, transaction

    def fail() -> None:
        raise IntegrityError("in the hook")

    def order(_: Any) -> Response:
        orm.create(id=f"failing {key}")
        transaction.on_commit(fail)
        return Response(201)

    assert post_django(key, order).status == 201
    assert orm.filter(id=f"failing {key}").count() == 1
    assert "on_commit" in caplog.text


def test_cursors_of_django_end_with_the_transaction(orm: Any) -> None:
    from django.db import connection

    def order(_: Any) -> Response:
        orm.bulk_create([orm.model(id=f"cursor {number}") for number in range(3)])
        locked = orm.filter(id__startswith="cursor").select_for_update().iterator(chunk_size=1)
        assert next(locked).tenant == "demo"
        with connection.cursor() as cursor:
            cursor.execute("SELECT is_holdable FROM pg_cursors WHERE name LIKE '%django%'")
            assert cursor.fetchall() == [(False,)]
        return Response(201)

    assert post_django("cursor", order).status == 201
    assert connection.get_autocommit()


@pytest.mark.parametrize("key", ["swallowed", None])
def test_a_view_of_django_that_swallows_an_error_gets_no_success(orm: Any, key: str | None) -> None:
    from django.db import IntegrityError

    def order(_: Any) -> Response:
        orm.create(id="swallowed")
        with pytest.raises(IntegrityError):
            orm.create(id="swallowed")
        return Response(201)

    assert post_django(key, order).status == 500
    assert orm.filter(id="swallowed").count() == 0
