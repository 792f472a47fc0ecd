"""A shop in Python. Every retry is safe, because the effect and the key's row are one commit.

    POST /orders             once per Idempotency-Key: the order, its event and the response
    POST /webhooks/{source}  once per source and webhook-id: the inbox row and the ledger entry

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

# Without prepared statements, no state stays on a connection between two transactions, so the
# service also works through a pooler in transaction mode.
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

# The sources that may send webhooks. Message ids are unique only within their source, so the
# source is part of a message's identity. Give each sender one name, and never change it.
SOURCES = {"bank", "marketplace"}


@app.post("/orders")
async def post_order(request: Request) -> Response:
    # A real service takes the tenant from its authentication: the principal's stable id.
    return await once(pool, request, "demo", "POST /orders", create_order)


async def create_order(tx: AsyncConnection, tenant: str, body: bytes) -> Response:
    """Runs in the transaction that claimed the key; it does not commit or call other systems."""
    order = json_of(body)
    item, amount = order.get("item"), order.get("amount")
    if not (isinstance(item, str) and item.isprintable() and 0 < len(item) <= 100):
        raise Problem("VALIDATION.member", "item must be a name of 1 to 100 characters")
    if not is_amount(amount) or amount <= 0:
        raise Problem("VALIDATION.member", "amount must be a positive integer")

    order_id = f"ord_{uuid.uuid4()}"
    await tx.execute(
        "INSERT INTO shop_order (id, tenant, item, amount) VALUES (%s, %s, %s, %s)",
        (order_id, tenant, item, amount),
    )
    if item == "sold out":
        # A refusal: the response is stored, and the INSERT above is rolled back.
        raise Problem("CONFLICT.state", "the item is sold out", status=409)
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
        raise Problem("NOT_FOUND", "this source is unknown", status=404)
    # A real service verifies the signature first, with the key of this source.
    body, message_id = await body_of(request), request.headers.get("webhook-id", "")
    amount = json_of(body).get("amount")
    if not (0 < len(message_id.encode()) <= 255 and is_amount(amount)):
        raise Problem("VALIDATION.request", "a payment must have a webhook-id and an amount")
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
            await tx.execute(
                "SELECT hapax.processed('ledger', %s, %s, 'entered')", (message_id, source)
            )
    # Acknowledge after the commit. If the process crashes between the two, the message is delivered
    # again and is a duplicate.
    if acceptance == "mismatch":
        raise Problem("CONFLICT.inbox.payload_mismatch", "the id was used for another payload")
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
