"""A shop in Python: every retry is safe, because the effect and its record are one commit.

    POST /orders             once per Idempotency-Key: the order, its event and the answer
    POST /webhooks/{source}  once per source and webhook-id: the mark that it was taken, and the
                             ledger entry

DATABASE_URL names a database with the schema `hapax` and the tables of ../migrations.
"""

import json
import os
import uuid
from contextlib import asynccontextmanager
from hashlib import sha256

from fastapi import FastAPI, Request, Response
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from idempotency import Problem, body_of, guarded, once

# Without prepared statements nothing is kept on a connection between two transactions, so that a
# transaction-mode pooler may stand before the database.
pool = AsyncConnectionPool(
    os.environ["DATABASE_URL"],
    kwargs={"prepare_threshold": None},
    min_size=2, max_size=10, timeout=5, open=False,
)


@asynccontextmanager
async def lifespan(_: FastAPI):
    async with pool:
        yield


app = FastAPI(lifespan=lifespan)

# Who may send webhooks. Ids are unique at their sender only: the source is part of what a message is
# known by, so every sender has one name here, which never changes.
SOURCES = {"bank", "marketplace"}


@app.post("/orders")
async def post_order(request: Request) -> Response:
    # A real service takes the tenant from its authentication: the principal's stable id.
    return await once(pool, request, "demo", "POST /orders", create_order)


async def create_order(tx: AsyncConnection, tenant: str, body: bytes) -> Response:
    """Runs in the transaction that holds the key; it neither commits nor calls other systems."""
    order = json_of(body)
    item, amount = order.get("item"), order.get("amount")
    if not (isinstance(item, str) and item.isprintable() and 0 < len(item) <= 100):
        raise Problem("VALIDATION.member", "an order has an item")
    if not is_amount(amount) or amount <= 0:
        raise Problem("VALIDATION.member", "an order has a positive amount")

    order_id = f"ord_{uuid.uuid4()}"
    await tx.execute(
        "INSERT INTO shop_order (id, tenant, item, amount) VALUES (%s, %s, %s, %s)",
        (order_id, tenant, item, amount),
    )
    if item == "sold out":
        # A refusal: it is remembered, and what was written before it is not.
        raise Problem("CONFLICT.state", "there is none left", status=409)
    created = json.dumps({"id": order_id, "item": item, "amount": amount})
    await tx.execute(
        "SELECT hapax.emit('order.created', %s, 'order', %s)", (created, order_id)
    )
    return Response(created, 201, {"Location": f"/orders/{order_id}"}, "application/json")


@app.post("/webhooks/{source}")
@guarded
async def post_webhook(request: Request) -> Response:
    source = request.path_params["source"]
    if source not in SOURCES:
        raise Problem("NOT_FOUND", "this source is not known", status=404)
    # A real service verifies the signature first, with the key of this source.
    body, message_id = await body_of(request), request.headers.get("webhook-id", "")
    amount = json_of(body).get("amount")
    if not (0 < len(message_id.encode()) <= 255 and is_amount(amount)):
        raise Problem("VALIDATION.request", "a payment has a webhook-id and an amount")
    async with pool.connection() as tx:
        taken = await tx.execute(
            "SELECT hapax.accept('ledger', %s, %s, %s)",
            (message_id, sha256(body).digest(), source),
        )
        (acceptance,) = await taken.fetchone()
        if acceptance == "first":
            await tx.execute(
                "INSERT INTO ledger_entry (message_id, amount) VALUES (%s, %s)",
                (message_id, amount),
            )
    # The acknowledgement leaves after the commit: a crash between the two brings the message
    # again, and then it is a duplicate.
    if acceptance == "mismatch":
        raise Problem("CONFLICT.inbox.payload_mismatch", "the id came before with other words")
    return Response(status_code=200)


def json_of(body: bytes) -> dict:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise Problem("VALIDATION.json", "the body is not JSON") from None
    if not isinstance(value, dict):
        raise Problem("VALIDATION.json", "the body is not an object")
    return value


def is_amount(value: object) -> bool:
    return type(value) is int and abs(value) < 2**63
