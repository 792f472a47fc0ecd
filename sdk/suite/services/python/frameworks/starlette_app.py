"""Starlette, served by uvicorn."""

import contextlib

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import reads
import shop
from frameworks import lazy
from hapax.starlette import Hapax


def serve(driver, port):
    lazy.serve(driver, build, port)


def build(driver, engine):
    hapax = Hapax(engine, tenant=tenant, retention=shop.RETENTION)

    @hapax.idempotent
    async def create(request, tx):
        order = await shop.create_order(tx, driver, await request.body())
        return JSONResponse(order, 201, shop.location(order))

    async def orders(request):
        return JSONResponse(await reads.orders(tenant(request)))

    @contextlib.asynccontextmanager
    async def lifespan(_):
        async with reads.pool:
            yield

    routes = [
        Route("/orders", create, methods=["POST"]),
        Route("/orders", orders, methods=["GET"]),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    hapax.install(app)
    return app


def tenant(request):
    return shop.tenant_of(request.headers.get("authorization"))
