"""What the shop does, whichever framework and driver it runs on.

POST /orders    once per Idempotency-Key: the order, its event and the response
GET /orders     the ids of the tenant's orders
POST /webhooks  once per webhook-id: the inbox row and the ledger entry
"""

import asyncio
import json
import os
import time
import uuid
from typing import Any

from hapax import Problem, codes

URL = os.environ["DATABASE_URL"]
CONNECTIONS = 8
"""Connections of a driver."""
RETENTION = float(os.environ.get("HAPAX_RETENTION_S", "86400"))
"""How long responses are kept, in seconds."""
ORDERS = "SELECT id FROM shop_order WHERE tenant = %s"


def tenant_of(authorization: str | None) -> str:
    """Return the tenant of a request. A real service verifies the credential first."""
    scheme, _, name = (authorization or "").partition(" ")
    return name if scheme == "Bearer" and name else "anonymous"


def order_of(body: bytes, tenant: str) -> tuple[dict[str, Any], float]:
    """Parse an order. Return its row, and how many seconds its handler takes."""
    sent = json.loads(body or b"null")
    if not isinstance(sent, dict):
        raise Problem(codes.JSON_INVALID, "the body is not an object")
    item, amount = sent.get("item"), sent.get("amount")
    if not (isinstance(item, str) and item.isprintable() and 0 < len(item) <= 100):
        raise Problem(codes.MEMBER_INVALID, "must be a name of 1 to 100 characters", member="item")
    if not (type(amount) is int and 0 < amount < 2**63):
        raise Problem(codes.MEMBER_INVALID, "must be a positive integer", member="amount")
    if item == "throw before":
        raise RuntimeError("raised before the first statement")
    row = {"id": f"ord_{uuid.uuid4()}", "tenant": tenant, "item": item, "amount": amount}
    return row, sent.get("slow_ms", 0) / 1_000


def written(row: dict[str, Any]) -> dict[str, Any]:
    """Return the response to an order whose row is written, or refuse it."""
    if row["item"] == "throw after":
        raise RuntimeError("raised after the first statement")
    if row["item"] == "sold out":
        raise Problem(codes.CONFLICT, "the item is sold out")
    return {"id": row["id"], "item": row["item"], "amount": row["amount"]}


async def create_order(tx: Any, driver: Any, body: bytes) -> dict[str, Any]:
    """Run in the transaction that has claimed the key."""
    row, slow = order_of(body, tx.tenant)
    await driver.insert(tx, row)
    order = written(row)
    await asyncio.sleep(slow)
    await tx.emit("order.created", order, aggregate=("order", order["id"]))
    return order


def create_order_sync(tx: Any, driver: Any, body: bytes) -> dict[str, Any]:
    """Run in the transaction that has claimed the key, in a thread."""
    row, slow = order_of(body, tx.tenant)
    driver.insert(tx, row)
    order = written(row)
    time.sleep(slow)
    tx.emit("order.created", order, aggregate=("order", order["id"]))
    return order


def location(order: dict[str, Any]) -> dict[str, str]:
    """Return the headers of the response to an order."""
    return {"Location": f"/orders/{order['id']}"}
