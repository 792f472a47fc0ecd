"""A payment in phases, and a process that is killed in the middle of it.

``python -m tests.services.payment DRIVER KEY PROVIDER POINT`` kills itself at a point.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from hapax import phased
from hapax.core.driver import done, run_blocking
from tests.provider import charge

POINTS = ["entered", "in reserved", "reserved", "in call", "called", "in charged", "charged"]


def ignore(_: str) -> None:
    """Pass a point."""


async def execute(tx: Any, sql: str) -> None:
    """Execute a statement with any driver. Those of sync drivers never wait."""
    if type(tx.connection).__module__.startswith("sqlalchemy"):
        from sqlalchemy import text

        await done(tx.connection.execute(text(sql)))
    else:
        await done(tx.connection.execute(sql))


async def insert(tx: Any, item: str) -> None:
    """Write a row."""
    await execute(tx, f"INSERT INTO shop_order VALUES (gen_random_uuid(), 'demo', '{item}', 1)")


async def pay(
    phases: Any,
    item: str,
    provider: str,
    at: Callable[[str], None] = ignore,
    **how: Any,
) -> dict[str, str]:
    """Reserve, charge at the provider, and record the charge."""

    async def reserve(tx: Any) -> None:
        await insert(tx, f"{item} reserved")
        at("in reserved")

    async def call(key: str) -> dict[str, str]:
        made = charge(provider, key)
        at("in call")
        return made

    async def record(tx: Any) -> None:
        await insert(tx, f"{item} charged")
        await done(tx.emit("payment.succeeded", made, aggregate=("payment", item)))
        at("in charged")

    at("entered")
    await done(phases.transaction("reserved", reserve))
    at("reserved")
    made: dict[str, str] = await done(phases.call("charge", call, **how))
    at("called")
    await done(phases.transaction("charged", record))
    at("charged")
    return made


def request(key: str) -> dict[str, Any]:
    """Return the arguments of a request."""
    return {"tenant": "demo", "operation": "charge", "key": key, "payload": b"{}"}


def main(driver: str, key: str, provider: str, point: str) -> None:
    """Pay, and die at a point."""
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

    def at(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    async def handler(phases: Any) -> phased.Response:
        await pay(phases, key, provider, at)
        return phased.Response(201)

    async def run() -> None:
        async with AsyncConnectionPool(os.environ["DATABASE_URL"], min_size=1) as pool:
            await phased.run_async(pool, handler, lease=0.3, **request(key))

    if driver == "psycopg":
        asyncio.run(run())
    else:
        with ConnectionPool(os.environ["DATABASE_URL"], min_size=1) as pool:
            phased.run(
                pool, lambda phases: run_blocking(handler(phases)), lease=0.3, **request(key)
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
