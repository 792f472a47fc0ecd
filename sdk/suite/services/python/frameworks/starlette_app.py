"""Starlette, served by uvicorn."""

import contextlib

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import ledger
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

    async def webhook(request):
        status, headers, body = await ledger.receive(request.headers, await request.body())
        return Response(body, status, headers)

    @contextlib.asynccontextmanager
    async def lifespan(_):
        async with reads.pool:
            yield

    routes = [
        Route("/orders", create, methods=["POST"]),
        Route("/orders", orders, methods=["GET"]),
        Route("/webhooks", webhook, methods=["POST"]),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    hapax.install(app)
    return app


def tenant(request):
    return shop.tenant_of(request.headers.get("authorization"))
