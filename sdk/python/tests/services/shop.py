"""What all services of the tests do: one order, with the misbehaviour that its item names."""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from hapax import Problem, codes

INSERT = "INSERT INTO shop_order (id, tenant, item, amount) VALUES ({}, {}, {}, {})"
BLOCK = "SELECT pg_advisory_xact_lock(42)"
SETTINGS = {"wait": 0.3, "tenant": lambda request: request.headers.get("x-user", "demo")}
BINARY = bytes(range(256)) * 4
STREAM = [b"a\n", b"b\n", b"c\xff\n"]
WEBHOOK_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

Execute = Callable[..., Awaitable[None]]


class ShopResponse:
    """A response, before the framework's own."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str], kind: str = "") -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.kind = kind


async def order(tx: Any, execute: Execute, emit: Execute, body: bytes) -> ShopResponse:
    """Handle an order. ``execute`` and ``emit`` are awaited; those of sync services never wait."""
    sent = json.loads(body)
    item, amount = sent["item"], sent["amount"]
    if item == "bad":
        raise Problem(codes.MEMBER_INVALID, "the item is bad", member="item")
    if item == "raise before":
        raise RuntimeError("raised before the first statement")
    if item.startswith("slow"):
        await execute("SELECT pg_sleep(2.5)")
    if item == "block before":
        await execute(BLOCK)
    order_id = f"ord_{uuid.uuid4()}"
    await execute(INSERT, order_id, tx.tenant, item, amount)
    await emit("order.created", {"id": order_id}, aggregate=("order", order_id))
    if item == "block after":
        await execute(BLOCK)
    if item == "raise after":
        raise RuntimeError("raised after the first statement")
    if item == "sold out":
        raise Problem(codes.CONFLICT, "the item is sold out")
    if item == "bad event":
        await emit("an event type with spaces", {})
    headers = {"Location": f"/orders/{order_id}", "Set-Cookie": "a=1", "X-Latin": "caf\xe9"}
    if item == "binary":
        return ShopResponse(201, BINARY, headers, "image/png")
    if item in {"stream", "endless", "events", "teapot"}:
        return ShopResponse(418 if item == "teapot" else 201, b"", headers, item)
    if item == "large":
        return ShopResponse(201, b"x" * (4 * 1024 * 1024 + 1), headers, "text/plain")
    created = json.dumps({"id": order_id, "item": item, "amount": amount}).encode()
    return ShopResponse(201, created, headers, "application/json")
