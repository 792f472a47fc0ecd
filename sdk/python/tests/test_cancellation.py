"""Requests that are cancelled in the middle, as middleware and servers do it."""

import asyncio
from typing import Annotated, Any

import httpx
import psycopg
import pytest
from fastapi import Depends, FastAPI
from psycopg_pool import AsyncConnectionPool

from hapax.fastapi import AsyncTx, Hapax

WAITING = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
INSERT = "INSERT INTO shop_order VALUES (gen_random_uuid(), 'demo', %s, 1)"


def build(pool: AsyncConnectionPool) -> FastAPI:
    app = FastAPI()
    hapax = Hapax(pool, tenant="demo", wait=10)
    hapax.install(app)

    @app.post("/{item}")
    async def create(item: str, tx: Annotated[AsyncTx, Depends(hapax.transaction)]) -> str:
        await tx.connection.execute(INSERT, [item])
        if item == "block":
            await tx.connection.execute("SELECT pg_advisory_xact_lock(42)")
        return item

    return app


async def until(connection: Any, count: int) -> None:
    for _ in range(6000):
        row = await (await connection.execute(WAITING)).fetchone()
        if row[0] == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{count} requests do not wait")


@pytest.mark.parametrize(
    ("item", "orders"),
    [
        # In a statement of the handler: the work is rolled back.
        ("block", 0),
        # In the commit: it goes on, as if the request had not been cancelled.
        ("block commit", 1),
    ],
)
def test_a_cancelled_request_gives_its_connection_back(
    database: str, item: str, orders: int
) -> None:
    async def run() -> None:
        blocker = await psycopg.AsyncConnection.connect(database, autocommit=True)
        await blocker.execute("SELECT pg_advisory_lock(42)")
        # One connection: if it is lost, no further request succeeds.
        async with AsyncConnectionPool(database, min_size=1, max_size=1, timeout=30) as pool:
            transport = httpx.ASGITransport(build(pool))
            async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
                headers = {"Idempotency-Key": "k"}
                first = asyncio.create_task(client.post(f"/{item}", headers=headers))
                await until(blocker, 1)
                first.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await first
                await blocker.execute("SELECT pg_advisory_unlock(42)")
                if orders == 0:
                    other = await client.post("/other", headers={"Idempotency-Key": "l"})
                    assert other.status_code == 200
                    found = await blocker.execute(
                        "SELECT count(*) FROM shop_order WHERE item = %s", [item]
                    )
                    assert await found.fetchone() == (0,)
                again = await client.post(f"/{item}", headers=headers)
                status = "replayed" if orders else "stored"
                assert (again.status_code, again.headers["idempotency-status"]) == (200, status)
        found = await blocker.execute("SELECT count(*) FROM shop_order WHERE item = %s", [item])
        assert await found.fetchone() == (1,)
        await blocker.close()

    asyncio.run(run())


def test_a_duplicate_that_is_cancelled_while_it_waits_leaves_nothing(database: str) -> None:
    async def run() -> None:
        blocker = await psycopg.AsyncConnection.connect(database, autocommit=True)
        await blocker.execute("SELECT pg_advisory_lock(42)")
        async with AsyncConnectionPool(database, min_size=2, max_size=2, timeout=30) as pool:
            transport = httpx.ASGITransport(build(pool))
            async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
                headers = {"Idempotency-Key": "k"}
                first = asyncio.create_task(client.post("/block", headers=headers))
                await until(blocker, 1)
                duplicates = [
                    asyncio.create_task(client.post("/block", headers=headers)) for _ in range(8)
                ]
                while pool.get_stats()["requests_num"] < 1 + len(duplicates):
                    await asyncio.sleep(0.001)
                for duplicate in duplicates:
                    duplicate.cancel()
                await asyncio.gather(*duplicates, return_exceptions=True)
                await blocker.execute("SELECT pg_advisory_unlock(42)")
                assert (await first).headers["idempotency-status"] == "stored"
                for key in ("k", "l", "m"):
                    response = await client.post(
                        "/other" if key != "k" else "/block", headers={"Idempotency-Key": key}
                    )
                    assert response.status_code == 200
        await blocker.close()

    asyncio.run(run())
