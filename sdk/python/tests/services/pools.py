"""Engines of all drivers, and how each executes a statement."""

from __future__ import annotations

import os
from typing import Any

URL = os.environ.get("DATABASE_URL", "")


def open_engine(driver: str) -> Any:
    """Create an engine. Those that need a loop are opened by :func:`start`."""
    if driver == "psycopg":
        from psycopg_pool import AsyncConnectionPool

        return AsyncConnectionPool(URL, min_size=2, max_size=8, timeout=30, open=False)
    if driver == "psycopg-sync":
        from psycopg_pool import ConnectionPool

        return ConnectionPool(URL, min_size=2, max_size=8, timeout=30, open=True)
    if driver == "sqlalchemy":
        from sqlalchemy.ext.asyncio import create_async_engine

        url = URL.replace("postgres://", "postgresql+asyncpg://")
        return create_async_engine(url, pool_size=8, max_overflow=0, pool_timeout=30)
    if driver == "sqlalchemy-session":
        from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

        url = URL.replace("postgres://", "postgresql+psycopg://")
        engine = create_async_engine(url, pool_size=8, max_overflow=0, pool_timeout=30)
        return async_sessionmaker(engine, expire_on_commit=False)
    if driver == "sqlalchemy-sync":
        from sqlalchemy import create_engine

        url = URL.replace("postgres://", "postgresql+psycopg://")
        return create_engine(url, pool_size=8, max_overflow=0, pool_timeout=30)
    raise ValueError(driver)


async def asyncpg_pool() -> Any:
    """Create a pool of asyncpg. It is bound to the running loop."""
    import asyncpg

    return await asyncpg.create_pool(URL, min_size=2, max_size=8)


def execute_with(driver: str, tx: Any) -> Any:
    """Return a coroutine function that executes a statement in the transaction."""
    if driver.startswith("sqlalchemy"):
        from sqlalchemy import text

        async def execute(sql: str, *params: Any) -> None:
            for number in range(len(params)):
                sql = sql.replace("{}", f":p{number}", 1)
            named = {f"p{number}": value for number, value in enumerate(params)}
            target = tx.session if driver.endswith("-session") else tx.connection
            done = target.execute(text(sql), named)
            if not driver.endswith("-sync"):
                await done

    elif driver == "asyncpg":

        async def execute(sql: str, *params: Any) -> None:
            for number in range(len(params)):
                sql = sql.replace("{}", f"${number + 1}", 1)
            await tx.connection.execute(sql, *params)

    else:

        async def execute(sql: str, *params: Any) -> None:
            done = tx.connection.execute(sql.replace("{}", "%s"), params)
            if driver == "psycopg":
                await done

    return execute


def emit_with(tx: Any) -> Any:
    """Return a coroutine function that emits an event."""

    async def emit(kind: str, payload: Any, **options: Any) -> None:
        done = tx.emit(kind, payload, **options)
        if done is not None:
            await done

    return emit
