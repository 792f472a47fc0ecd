"""What is special about FastAPI: dependencies, validation, nested routers, and middleware."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.testclient import TestClient
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from pydantic import BaseModel
from starlette.middleware.gzip import GZipMiddleware

from hapax import TenantError
from hapax.fastapi import AsyncTx, Disposition, Hapax, Tx
from hapax.testing import assert_idempotent


class Order(BaseModel):
    item: str
    amount: int = 1


class Bench:
    """An application with a synchronous pool, in the process of the test."""

    def __init__(self, pool: ConnectionPool, **settings: Any) -> None:
        self.pool = pool
        self.app = FastAPI()
        self.hapax = Hapax(pool, **{"tenant": "demo", **settings})

    def client(self) -> TestClient:
        self.hapax.install(self.app)
        return TestClient(self.app, raise_server_exceptions=False)

    def count(self) -> int:
        with self.pool.connection() as connection:
            row = connection.execute("SELECT count(*) FROM ledger_entry").fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def pool(database: str) -> Iterator[ConnectionPool]:
    with ConnectionPool(database, min_size=1, max_size=4, open=True) as opened:
        yield opened


def insert(tx: Any) -> None:
    tx.connection.execute("INSERT INTO ledger_entry VALUES ('f', 1)")


def add_orders(bench: Bench) -> None:
    @bench.app.post("/orders")
    def create(order: Order, tx: Annotated[Tx, Depends(bench.hapax.transaction)]) -> Order:
        insert(tx)
        return order


def post(client: TestClient, path: str, key: str | None, **options: Any) -> Any:
    headers = {**options.pop("headers", {}), **({"Idempotency-Key": key} if key else {})}
    return client.post(path, headers=headers, **options)


def test_a_request_that_is_not_valid_releases_its_key(pool: ConnectionPool) -> None:
    bench = Bench(pool)
    add_orders(bench)
    client = bench.client()
    refused = post(client, "/orders", "k", json={"amount": 1})
    assert refused.status_code == 422
    assert "idempotency-status" not in refused.headers
    accepted = post(client, "/orders", "k", json={"item": "tea"})
    assert accepted.headers["idempotency-status"] == "stored"
    assert bench.count() == 1


def test_the_operation_is_the_whole_template_of_nested_routers(pool: ConnectionPool) -> None:
    bench = Bench(pool, service="shop")
    inner, outer, mounted = APIRouter(prefix="/notes"), APIRouter(prefix="/v1/{area}"), FastAPI()

    def note(id: str, tx: Annotated[Tx, Depends(bench.hapax.transaction)]) -> str:
        return id

    inner.add_api_route("/{id}", note, methods=["POST"])
    outer.include_router(inner)
    bench.app.include_router(outer)
    mounted.add_api_route("/things/{id:path}", note, methods=["PUT"])
    bench.app.mount("/sub", mounted)
    client = bench.client()
    assert post(client, "/v1/eu/notes/1", "k").status_code == 200
    assert client.put("/sub/things/a/b", headers={"Idempotency-Key": "k"}).status_code == 200
    replay = client.put("/sub/things/a/b", headers={"Idempotency-Key": "k"})
    assert replay.headers["idempotency-status"] == "replayed"
    with pool.connection() as connection:
        rows = connection.execute(
            "SELECT operation FROM hapax.idempotency_key ORDER BY 1"
        ).fetchall()
    assert rows == [("shop:POST /v1/{area}/notes/{id}",), ("shop:PUT /sub/things/{id}",)]


def test_a_handler_that_commits_itself_is_a_final_error_and_has_no_stored_response(
    pool: ConnectionPool,
) -> None:
    bench = Bench(pool)

    @bench.app.post("/orders")
    def create(tx: Annotated[Tx, Depends(bench.hapax.transaction)]) -> Any:
        insert(tx)
        tx.connection.execute("COMMIT")
        return {}

    client = bench.client()
    response = post(client, "/orders", "k")
    assert response.status_code == 500
    assert (response.json()["code"], response.json()["retryable"]) == ("INTERNAL", False)
    assert "idempotency-status" not in response.headers
    # Its committed effect cannot be undone, which is why the error is not retryable.
    assert bench.count() == 1


def test_without_a_key_an_optional_operation_runs_unprotected(pool: ConnectionPool) -> None:
    bench = Bench(pool)
    optional = bench.hapax.transaction_with(key="optional")

    @bench.app.post("/optional")
    def create(tx: Annotated[Tx, Depends(optional)], status: int = 200) -> Any:
        insert(tx)
        tx.emit("order.created", {"key": tx.key})
        if status >= 400:
            tx.disposition = Disposition.RELEASE
        return {}

    @bench.app.get("/optional")
    def read(tx: Annotated[Tx, Depends(bench.hapax.transaction)]) -> Any:
        return tx.key

    client = bench.client()
    response = post(client, "/optional", None)
    assert response.headers["idempotency-status"] == "bypassed"
    assert bench.count() == 1
    assert post(client, "/optional?status=400", None).status_code == 200
    assert bench.count() == 1
    assert post(client, "/optional", "k").headers["idempotency-status"] == "stored"
    read_only = client.get("/optional", headers={"Idempotency-Key": "k"})
    assert read_only.json() is None
    assert "idempotency-status" not in read_only.headers
    with pool.connection() as connection:
        rows = connection.execute("SELECT payload FROM hapax.outbox_event ORDER BY id").fetchall()
    assert rows == [('{"key":null}',), ('{"key":"k"}',)]


def test_other_middleware_works_on_what_is_sent_and_not_on_what_is_stored(
    pool: ConnectionPool,
) -> None:
    bench = Bench(pool)
    add_orders(bench)
    client = bench.client()
    bench.app.add_middleware(GZipMiddleware, minimum_size=10)
    order = {"item": "tea" * 1000}
    first = assert_idempotent(
        lambda key: post(client, "/orders", key, json=order),
        other=lambda key: post(client, "/orders", key, json={"item": "milk"}),
        effects=bench.count,
    )
    assert first.headers["content-encoding"] == "gzip"
    plain = post(
        client,
        "/orders",
        first.headers["idempotency-key"],
        json=order,
        headers={"Accept-Encoding": "identity"},
    )
    assert "content-encoding" not in plain.headers
    assert plain.json() == first.json()


def test_a_handler_for_all_exceptions_responds_after_the_rollback(pool: ConnectionPool) -> None:
    bench = Bench(pool)

    @bench.app.exception_handler(Exception)
    def page(request: Request, error: Exception) -> Any:
        from starlette.responses import PlainTextResponse

        return PlainTextResponse(f"own page, {bench.count()} rows", 500)

    @bench.app.post("/orders")
    def create(tx: Annotated[Tx, Depends(bench.hapax.transaction)]) -> Any:
        insert(tx)
        raise RuntimeError("the handler fails")

    assert post(bench.client(), "/orders", "k").text == "own page, 0 rows"


def test_a_failure_is_stored_if_the_operation_says_so(pool: ConnectionPool) -> None:
    bench = Bench(pool, store_failures=True)

    @bench.app.post("/orders")
    def create(tx: Annotated[Tx, Depends(bench.hapax.transaction)]) -> Any:
        insert(tx)
        raise RuntimeError("the handler fails")

    client = bench.client()
    first, again = post(client, "/orders", "k"), post(client, "/orders", "k")
    assert first.headers["idempotency-status"] == "stored"
    assert again.headers["idempotency-status"] == "replayed"
    assert first.json() == again.json()
    assert first.json()["retryable"] is False
    assert bench.count() == 0


def test_a_middleware_that_is_missing_is_named(pool: ConnectionPool) -> None:
    bench = Bench(pool)
    add_orders(bench)
    with pytest.raises(RuntimeError, match=r"call hapax\.install\(app\)"):
        post(TestClient(bench.app), "/orders", "k", json={"item": "tea"})


def test_a_credential_without_a_tenant_is_refused(pool: ConnectionPool) -> None:
    bench = Bench(pool, tenant=None)
    add_orders(bench)
    bench.hapax.install(bench.app)
    client = TestClient(bench.app)
    assert post(client, "/orders", "k", json={"item": "tea"}).status_code == 200
    with pytest.raises(TenantError, match="pass tenant="):
        post(client, "/orders", "l", json={"item": "tea"}, headers={"Authorization": "Bearer me"})
    assert bench.count() == 1


def test_settings_that_do_not_exist_are_refused(pool: ConnectionPool) -> None:
    with pytest.raises(ValueError, match='expected "required" or "optional"'):
        Hapax(pool, key="maybe")
    with pytest.raises(ValueError, match="expected one of hapax, ietf"):
        Hapax(pool, profile="other")
    with pytest.raises(TypeError):
        Hapax(pool, retentoin=5)


def test_a_coroutine_with_an_asynchronous_pool(database: str, pool: ConnectionPool) -> None:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with engine:
            yield

    app = FastAPI(lifespan=lifespan)
    engine = AsyncConnectionPool(database, open=False)
    hapax = Hapax(engine, tenant=lambda request: request.headers["x-user"], profile="stripe")
    hapax.install(app)

    @app.post("/orders")
    async def create(order: Order, tx: Annotated[AsyncTx, Depends(hapax.transaction)]) -> Order:
        await tx.connection.execute("INSERT INTO ledger_entry VALUES (%s, 1)", [tx.tenant])
        return order

    with TestClient(app) as client:
        user = {"x-user": "ann"}
        first = post(client, "/orders", "k", json={"item": "tea"}, headers=user)
        again = post(client, "/orders", "k", json={"item": "tea"}, headers=user)
        other = post(client, "/orders", "k", json={"item": "milk"}, headers=user)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert other.status_code == 400
