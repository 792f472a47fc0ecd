"""Orders with FastAPI. VARIANT chooses how a retry is recognized."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel
from shop import DATABASE_URL, HAS_EVENT, INSERT, IS_HAPAX, POOL, REDIS_URL, VARIANT

pool = AsyncConnectionPool(DATABASE_URL, **POOL)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with pool:
        yield


app = FastAPI(lifespan=lifespan)


class Order(BaseModel):
    item: str
    amount: int


async def insert(connection: Any, order: Order) -> dict[str, Any]:
    cursor = await connection.execute(INSERT, (order.item, order.amount))
    (number,) = await cursor.fetchone()
    return {"id": number, "item": order.item, "amount": order.amount}


if IS_HAPAX:
    from hapax.fastapi import AsyncTx, Hapax

    hapax = Hapax(pool, tenant=lambda _: "bench")
    hapax.install(app)

    @app.post("/orders", status_code=201)
    async def create(
        order: Order, tx: Annotated[AsyncTx, Depends(hapax.transaction)]
    ) -> dict[str, Any]:
        created = await insert(tx.connection, order)
        if HAS_EVENT:
            await tx.emit("order.created", created, aggregate=("order", str(created["id"])))
        return created

else:

    @app.post("/orders", status_code=201)
    async def create_bare(order: Order) -> dict[str, Any]:
        async with pool.connection() as connection:
            return await insert(connection, order)


if VARIANT == "fastapi-idempotency-memory":
    from fastapi_idempotency import IdempotencyMiddleware

    app.add_middleware(IdempotencyMiddleware)
elif VARIANT.startswith("asgi-idempotency-header"):
    from idempotency_header_middleware import IdempotencyHeaderMiddleware
    from idempotency_header_middleware.backends import MemoryBackend, RedisBackend
    from redis.asyncio import from_url

    is_redis = VARIANT.endswith("-redis")
    backend = RedisBackend(redis=from_url(REDIS_URL)) if is_redis else MemoryBackend()
    app.add_middleware(IdempotencyHeaderMiddleware, backend=backend)
