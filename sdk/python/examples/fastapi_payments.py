"""Payments with FastAPI: each is charged once at a provider, even if the process dies.

Run it with ``DATABASE_URL=postgres://... PROVIDER_URL=http://... python fastapi_payments.py 8000``.
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
import uvicorn
from fastapi import Depends, FastAPI
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

from hapax import Code, Problem
from hapax.fastapi import AsyncPhases, AsyncTx, Hapax

DECLINED = Code("PROVIDER.card.declined", 402, "The card was declined")
TABLE = "CREATE TABLE IF NOT EXISTS example_charge (id text PRIMARY KEY, amount bigint NOT NULL)"
pool = AsyncConnectionPool(os.environ["DATABASE_URL"], open=False)
provider = httpx.AsyncClient(base_url=os.environ["PROVIDER_URL"])


class Payment(BaseModel):
    """The body of a request."""

    amount: int


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with pool, provider:
        async with pool.connection() as connection:
            await connection.execute(TABLE)
        yield


app = FastAPI(lifespan=lifespan)
hapax = Hapax(pool, tenant=lambda request: request.headers.get("x-user", "demo"))
hapax.install(app)


async def charge(payment: Payment, key: str) -> dict[str, str]:
    # The provider returns the first charge again for a key that it knows.
    response = await provider.post("/", json=payment.model_dump(), headers={"Idempotency-Key": key})
    if response.status_code == 402:
        # A refusal: the response is stored.
        raise Problem(DECLINED, "the card was declined")
    # Otherwise the outcome is unknown: the key stays in progress, and a retry calls under the same
    # key.
    response.raise_for_status()
    return {"id": response.json()["id"]}


@app.post("/payments", status_code=201)
async def create(
    payment: Payment, phases: Annotated[AsyncPhases, Depends(hapax.phases)]
) -> dict[str, object]:
    charged = await phases.call("charge", lambda key: charge(payment, key))

    async def record(tx: AsyncTx) -> None:
        row = (charged["id"], payment.amount)
        await tx.connection.execute("INSERT INTO example_charge VALUES (%s, %s)", row)
        await tx.emit("payment.succeeded", charged, aggregate=("charge", charged["id"]))

    await phases.transaction("charged", record)
    return {"id": charged["id"], "amount": payment.amount}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
