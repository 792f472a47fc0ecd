"""The shop with FastAPI. DRIVER names the driver, DATABASE_URL the database."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from hapax.core.driver import run_blocking
from hapax.fastapi import Hapax

from . import pools, shop

DRIVER = os.environ["DRIVER"]


class Order(BaseModel):
    item: str
    amount: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    if DRIVER == "psycopg":
        await app.state.engine.open()
    yield


def response_of(made: shop.ShopResponse) -> Response:
    if made.kind == "teapot":
        raise HTTPException(418, "a teapot")
    if made.kind == "stream":
        return StreamingResponse(iter(shop.STREAM), 201, made.headers, "text/csv")
    if made.kind == "endless":
        return StreamingResponse(iter(lambda: b"x" * 65536, b""), 201)
    if made.kind == "events":
        return StreamingResponse(iter([b"data: 1\n\n"]), 200, media_type="text/event-stream")
    return Response(made.body, made.status, made.headers, made.kind)


def build(engine: Any) -> FastAPI:
    app = FastAPI(lifespan=lifespan)
    app.state.engine = engine
    hapax = Hapax(engine, **shop.SETTINGS)
    hapax.install(app)
    nested = APIRouter(prefix="/notes")

    if DRIVER.endswith("-sync"):

        @app.post("/orders")
        def create_sync(
            request: Request, order: Order, tx: Annotated[Any, Depends(hapax.transaction)]
        ):
            body = order.model_dump_json().encode()
            execute, emit = pools.execute_with(DRIVER, tx), pools.emit_with(tx)
            return response_of(run_blocking(shop.order(tx, execute, emit, body)))

    else:

        @app.post("/orders")
        async def create(
            request: Request, order: Order, tx: Annotated[Any, Depends(hapax.transaction)]
        ):
            body = order.model_dump_json().encode()
            execute, emit = pools.execute_with(DRIVER, tx), pools.emit_with(tx)
            return response_of(await shop.order(tx, execute, emit, body))

    optional = hapax.transaction_with(key="optional", retention=60)

    @nested.post("/{id}")
    async def note(
        id: int, request: Request, tx: Annotated[Any, Depends(optional)]
    ) -> dict[str, Any]:
        flow = request.scope["hapax"].flow
        return {"operation": flow._parsed.name, "key": tx.key}

    outer = APIRouter(prefix="/v1")
    outer.include_router(nested)
    app.include_router(outer)
    return app


if DRIVER == "asyncpg":

    class Lazy:
        """Builds the application in the loop of the server, to which the pool is bound."""

        app: FastAPI | None = None

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if self.app is None:
                self.app = build(await pools.asyncpg_pool())
            await self.app(scope, receive, send)

    app: Any = Lazy()
else:
    app = build(pools.open_engine(DRIVER))
