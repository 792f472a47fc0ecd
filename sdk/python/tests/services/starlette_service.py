"""The shop with Starlette."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hapax.starlette import AsyncTx, Hapax

from . import pools, shop

DRIVER = os.environ["DRIVER"]
engine = pools.open_engine(DRIVER)
hapax = Hapax(engine, **shop.SETTINGS)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    await engine.open()
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


@hapax.idempotent
async def create(request: Request, tx: AsyncTx) -> Response:
    execute, emit = pools.execute_with(DRIVER, tx), pools.emit_with(tx)
    return response_of(await shop.order(tx, execute, emit, await request.body()))


app: Any = Starlette(routes=[Route("/orders", create, methods=["POST"])], lifespan=lifespan)
hapax.install(app)
