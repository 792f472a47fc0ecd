"""Payments with FastAPI. DATABASE_URL names the database, PROVIDER_URL the provider."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from hapax.fastapi import AsyncPhases, AsyncTx, Hapax
from tests.provider import charge

pool = AsyncConnectionPool(os.environ["DATABASE_URL"], min_size=1, max_size=8, open=False)
INSERT = "INSERT INTO shop_order VALUES (gen_random_uuid(), 'demo', %s, 1)"


class Payment(BaseModel):
    item: str
    amount: int


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with pool:
        yield


app = FastAPI(lifespan=lifespan)
hapax = Hapax(pool, tenant="demo", lease=0.5, wait=20)
hapax.install(app)


@app.post("/orders", status_code=201)
async def create(
    payment: Payment, phases: Annotated[AsyncPhases, Depends(hapax.phases)]
) -> dict[str, str]:
    async def record(tx: AsyncTx) -> None:
        await tx.connection.execute(INSERT, [payment.item])
        if payment.item == "block in phase":
            await tx.connection.execute("SELECT pg_advisory_xact_lock(42)")
        await tx.emit("payment.succeeded", charged, aggregate=("payment", payment.item))

    url = os.environ["PROVIDER_URL"]
    charged = await phases.call("charge", lambda key: run_in_threadpool(charge, url, key))
    await phases.transaction("charged", record)
    return {"charge": charged["id"]}
