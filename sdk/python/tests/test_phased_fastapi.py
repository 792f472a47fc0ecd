"""Payments in phases with FastAPI: a service that is killed, and what is special about FastAPI."""

import re
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import psycopg
import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from pydantic import BaseModel

from hapax import Problem
from hapax.fastapi import AsyncPhases, AsyncTx, Hapax, Phases, Tx

from .conftest import Service, until
from .provider import DECLINED, Provider, charge


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    opened = Provider()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def service(shared: str, provider: Provider) -> Iterator[Service]:
    opened = Service("payments", "psycopg", shared, PROVIDER_URL=provider.url)
    yield opened
    opened.close()


def check_paid(service: Service, provider: Provider, key: str, item: str, before: int) -> None:
    """Check that a payment is made once, after its process was killed."""
    until(lambda: service.post(key, item).status_code == 201, "the retry succeeds")
    assert service.post(key, item).headers["idempotency-status"] == "replayed"
    assert service.orders(item) == 1
    assert len(provider.charges) == before + 1


@pytest.mark.parametrize("item", ["block in phase", "block commit"])
def test_a_killed_service_charges_once_after_the_retry(
    service: Service, provider: Provider, key: str, item: str
) -> None:
    before = len(provider.charges)
    with (
        psycopg.connect(service.database) as blocker,
        ThreadPoolExecutor() as threads,
    ):
        blocker.execute("SELECT pg_advisory_lock(42)")
        first = threads.submit(service.post, key, item)
        until(service.waiting, "the phase waits")
        service.kill()
        with pytest.raises(httpx.TransportError):
            first.result()
        service.start()
        blocker.execute("SELECT pg_advisory_unlock(42)")
    check_paid(service, provider, key, item, before)


def test_a_service_that_is_killed_in_the_call_charges_once(
    service: Service, provider: Provider, key: str
) -> None:
    before = len(provider.charges)

    def kill(_: str) -> str:
        provider.decide = lambda _: "charge"
        service.kill()
        return "lost"

    provider.decide = kill
    with pytest.raises(httpx.TransportError):
        service.post(key, "killed")
    service.start()
    check_paid(service, provider, key, "killed", before)


@pytest.fixture
def client(shared: str, provider: Provider) -> Iterator[TestClient]:
    app = FastAPI()
    with ConnectionPool(shared, min_size=1, max_size=4) as pool:
        hapax = Hapax(pool, tenant="demo", key="optional")
        hapax.install(app)

        @app.post("/payments/{amount}", status_code=201)
        def create(amount: int, phases: Annotated[Phases, Depends(hapax.phases)]) -> dict[str, Any]:
            if amount == 0:
                raise HTTPException(400, "nothing")
            if amount == 402:
                raise Problem(DECLINED)
            if amount == 500:
                raise RuntimeError("the handler fails")
            made = phases.call("charge", lambda asked: charge(provider.url, asked))

            def record(tx: Tx) -> None:
                tx.connection.execute(
                    "INSERT INTO ledger_entry VALUES (%s, %s)", [phases.key, amount]
                )

            phases.transaction("charged", record)
            return {"charge": made["id"]}

        yield TestClient(app, raise_server_exceptions=False)


def post(client: TestClient, amount: object, key: str | None) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return client.post(f"/payments/{amount}", headers=headers)


def state(shared: str, key: str) -> object:
    with psycopg.connect(shared) as connection:
        row = connection.execute(
            "SELECT state FROM hapax.idempotency_key WHERE key = %s", [key]
        ).fetchone()
    return None if row is None else row[0]


def test_a_synchronous_handler_pays_once(client: TestClient, shared: str, key: str) -> None:
    first, second = post(client, 5, key), post(client, 5, key)
    assert first.status_code == 201, first.text
    assert first.headers["idempotency-status"] == "stored"
    assert second.headers["idempotency-status"] == "replayed"
    assert first.content == second.content
    with psycopg.connect(shared) as connection:
        rows = connection.execute(
            "SELECT amount FROM ledger_entry WHERE message_id = %s", [key]
        ).fetchall()
    assert rows == [(5,)]
    assert post(client, 6, key).status_code == 409


def test_a_phased_operation_needs_a_key(client: TestClient) -> None:
    refused = post(client, 5, None)
    assert refused.json()["code"] == "VALIDATION.idempotency_key.missing"


@pytest.mark.parametrize(
    ("amount", "status", "kept"),
    [("x", 422, None), (0, 400, None), (402, 402, "completed"), (500, 500, "in_progress")],
)
def test_a_refusal_is_stored_and_a_mistake_is_not(
    client: TestClient, shared: str, key: str, amount: object, status: int, kept: str | None
) -> None:
    assert post(client, amount, key).status_code == status
    assert state(shared, key) == kept


class Payment(BaseModel):
    amount: int


class Charging:
    """The provider of the README."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def charge(self, payment: Payment, *, idempotency_key: str) -> dict[str, int]:
        self.keys.append(idempotency_key)
        return {"charged": payment.amount}


async def record(tx: AsyncTx, charged: dict[str, int]) -> None:
    statement = "INSERT INTO ledger_entry VALUES ('readme', %s)"
    await tx.connection.execute(statement, [charged["charged"]])


def test_the_handler_of_the_readme_pays_once(shared: str, key: str) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    section = readme.split("## Call another system\n")[1].split("\n## ")[0]
    (handler,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    pool = AsyncConnectionPool(shared, min_size=1, max_size=2, open=False)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with pool:
            yield

    app = FastAPI(lifespan=lifespan)
    hapax, provider = Hapax(pool, tenant="demo"), Charging()
    hapax.install(app)
    names = {"app": app, "hapax": hapax, "provider": provider, "record": record}
    types = {"Annotated": Annotated, "AsyncPhases": AsyncPhases, "Depends": Depends}
    exec(handler, names | types | {"Payment": Payment})
    with TestClient(app) as client:
        headers = {"Idempotency-Key": key}
        answers = [client.post("/payments", headers=headers, json={"amount": 7}) for _ in range(2)]
    assert [it.status_code for it in answers] == [201, 201], answers[0].text
    assert [it.json() for it in answers] == [{"charged": 7}] * 2
    assert len(provider.keys) == 1
    with psycopg.connect(shared) as connection:
        rows = connection.execute("SELECT amount FROM ledger_entry WHERE message_id = 'readme'")
        assert rows.fetchall() == [(7,)]
