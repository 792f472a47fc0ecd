"""A shop in Python. Every retry is safe, because the effect and the key's row are one commit.

    POST /orders             once per Idempotency-Key: the order, its event and the response
    POST /webhooks/{source}  once per source and webhook-id: the inbox row and the ledger entry

DATABASE_URL names a database with the schema `hapax` and the tables of ../migrations.
"""

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Request, Response
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel, Field, ValidationError

from hapax import codes
from hapax.fastapi import AsyncTx, Hapax, Problem
from hapax.inbox import Acceptance, Inbox

DEMO_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
INSERT_ORDER = "INSERT INTO shop_order (id, tenant, item, amount) VALUES (%s, %s, %s, %s)"
INSERT_ENTRY = "INSERT INTO ledger_entry (message_id, amount) VALUES (%s, %s)"

pool = AsyncConnectionPool(os.environ["DATABASE_URL"], min_size=2, max_size=10, timeout=5, open=False)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with pool:
        yield


app = FastAPI(lifespan=lifespan)
# A real service takes the tenant from its authentication: the principal's stable id.
hapax = Hapax(pool, tenant="demo")
hapax.install(app)


class NewOrder(BaseModel):
    item: str = Field(min_length=1, max_length=100)
    amount: int = Field(gt=0, lt=2**63)


class Order(NewOrder):
    id: str


@app.post("/orders", status_code=201)
async def create_order(
    new: NewOrder, response: Response, tx: Annotated[AsyncTx, Depends(hapax.transaction)]
) -> Order:
    order = Order(id=f"ord_{uuid.uuid4()}", **new.model_dump())
    await tx.connection.execute(INSERT_ORDER, (order.id, tx.tenant, order.item, order.amount))
    if order.item == "sold out":
        # A refusal: the response is stored, and the INSERT above is rolled back.
        raise Problem(codes.CONFLICT, "the item is sold out")
    await tx.emit("order.created", order, aggregate=("order", order.id))
    response.headers["Location"] = f"/orders/{order.id}"
    return order  # sent after the commit


inbox = Inbox("ledger", {"bank": [os.environ.get("BANK_SECRET", DEMO_SECRET)]})


class Payment(BaseModel):
    class Data(BaseModel):
        amount: int

    data: Data


@app.post("/webhooks/{source}")
async def receive(source: str, request: Request) -> Response:
    try:
        message = inbox.verify(source, request.headers, await request.body())
        payment = Payment.model_validate_json(message.body)
        async with pool.connection() as connection:
            if await inbox.accept(connection, message) is Acceptance.FIRST:
                await connection.execute(INSERT_ENTRY, (message.id, payment.data.amount))
                await inbox.processed(connection, message, "entered")
    except ValidationError:
        return refused(Problem(codes.REQUEST_INVALID, "a payment has an amount"))
    except Problem as problem:
        return refused(problem)
    return Response(status_code=200)  # after the commit


def refused(problem: Problem) -> Response:
    refusal = problem.response()
    return Response(refusal.body, refusal.status, dict(refusal.headers))
