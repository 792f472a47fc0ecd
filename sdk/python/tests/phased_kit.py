"""Runs requests in phases with each driver."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy.ext.asyncio import create_async_engine

from hapax import phased
from hapax.core.driver import run_blocking

from .provider import Provider
from .services.payment import pay, request

DRIVERS = ["psycopg", "psycopg-sync", "asyncpg", "sqlalchemy", "sqlalchemy-sync"]


class Kit:
    """Runs requests with one driver. Handlers are coroutines, which never wait on sync drivers."""

    def __init__(self, driver: str, database: str) -> None:
        self.driver, self.database = driver, database
        self.db = psycopg.connect(database, autocommit=True)
        self.provider = Provider()
        self.is_sync = driver.endswith("-sync")

    def close(self) -> None:
        self.provider.close()
        self.db.close()

    def run(self, key: str, handler: Any, url: str = "", **settings: Any) -> phased.Result:
        if self.is_sync:
            return self._run_sync(key, handler, url or self.database, settings)
        return asyncio.run(self._run(key, handler, url or self.database, settings))

    def _run_sync(self, key: str, handler: Any, url: str, settings: Any) -> phased.Result:
        def work(phases: Any) -> Any:
            return run_blocking(handler(phases))

        if self.driver == "psycopg-sync":
            with ConnectionPool(url, min_size=1, max_size=4) as pool:
                return phased.run(pool, work, **request(key), **settings)
        engine = sqlalchemy.create_engine(url.replace("postgres:", "postgresql+psycopg:"))
        try:
            return phased.run(engine, work, **request(key), **settings)
        finally:
            engine.dispose()

    async def _run(self, key: str, handler: Any, url: str, settings: Any) -> phased.Result:
        if self.driver == "psycopg":
            async with AsyncConnectionPool(url, min_size=1, max_size=4) as pool:
                return await phased.run_async(pool, handler, **request(key), **settings)
        if self.driver == "asyncpg":
            async with asyncpg.create_pool(url, min_size=1, max_size=4) as other:
                return await phased.run_async(other, handler, **request(key), **settings)
        engine = create_async_engine(url.replace("postgres:", "postgresql+asyncpg:"))
        try:
            return await phased.run_async(engine, handler, **request(key), **settings)
        finally:
            await engine.dispose()

    def pay(self, key: str, **how: Any) -> phased.Result:
        async def handler(phases: Any) -> phased.Response:
            made = await pay(phases, key, self.provider.url, **how)
            return phased.Response(201, body=made["id"].encode())

        return self.run(key, handler)

    async def apart(self, key: str, handler: Any, **settings: Any) -> phased.Result:
        """Run a request of another process, from a handler."""
        if self.is_sync:
            return self.run(key, handler, **settings)
        return await asyncio.to_thread(self.run, key, handler, **settings)

    async def pause(self) -> None:
        if self.is_sync:
            time.sleep(0.01)
        else:
            await asyncio.sleep(0.01)

    def value(self, sql: str, *params: object) -> Any:
        row = self.db.execute(sql, params).fetchone()
        return None if row is None else row[0]

    def column(self, key: str, column: str) -> Any:
        return self.value(f"SELECT {column} FROM hapax.idempotency_key WHERE key = %s", key)

    def rows(self, item: str) -> int:
        return int(self.value("SELECT count(*) FROM shop_order WHERE item LIKE %s", f"{item}%"))

    def lapse(self, key: str) -> None:
        """End the lease of a key, as time does."""
        self.db.execute(
            "UPDATE hapax.idempotency_key "
            "SET lease_until = date_trunc('milliseconds', clock_timestamp()) WHERE key = %s",
            [key],
        )
