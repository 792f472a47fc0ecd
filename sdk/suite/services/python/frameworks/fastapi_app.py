"""FastAPI, served by uvicorn."""

from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse

import ledger
import reads
import shop
from frameworks import lazy
from hapax.fastapi import Hapax


def serve(driver, port):
    lazy.serve(driver, build, port)


def build(driver, engine):
    @asynccontextmanager
    async def lifespan(_):
        async with reads.pool:
            yield

    app = FastAPI(lifespan=lifespan)
    hapax = Hapax(engine, tenant=tenant, retention=shop.RETENTION)
    hapax.install(app)

    if driver.IS_ASYNC:

        @app.post("/orders")
        async def create(
            request: Request, tx: Annotated[Any, Depends(hapax.transaction)]
        ) -> JSONResponse:
            order = await shop.create_order(tx, driver, await request.body())
            return JSONResponse(order, 201, shop.location(order))

    else:

        async def body_of(request: Request) -> bytes:
            return await request.body()

        @app.post("/orders")
        def create_sync(
            body: Annotated[bytes, Depends(body_of)],
            tx: Annotated[Any, Depends(hapax.transaction)],
        ) -> JSONResponse:
            order = shop.create_order_sync(tx, driver, body)
            return JSONResponse(order, 201, shop.location(order))

    @app.get("/orders")
    async def orders(request: Request) -> dict[str, Any]:
        return await reads.orders(tenant(request))

    @app.post("/webhooks")
    async def webhook(request: Request) -> Response:
        status, headers, body = await ledger.receive(request.headers, await request.body())
        return Response(body, status, headers)

    return app


def tenant(request):
    return shop.tenant_of(request.headers.get("authorization"))
