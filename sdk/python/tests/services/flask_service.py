"""The shop with Flask."""

import os

from flask import Flask, Response, abort, request

from hapax.core.driver import run_blocking
from hapax.flask import Hapax, Tx

from . import pools, shop

DRIVER = os.environ["DRIVER"]
app = Flask(__name__)
hapax = Hapax(pools.open_engine(DRIVER), **shop.SETTINGS)


def response_of(made: shop.ShopResponse) -> Response:
    if made.kind == "teapot":
        abort(418)
    if made.kind == "stream":
        return Response(iter(shop.STREAM), 201, made.headers, content_type="text/csv")
    if made.kind == "endless":
        return Response(iter(lambda: b"x" * 65536, b""), 201)
    if made.kind == "events":
        return Response(iter([b"data: 1\n\n"]), 200, content_type="text/event-stream")
    return Response(made.body, made.status, made.headers, content_type=made.kind)


@app.post("/orders")
@hapax.idempotent
def create(tx: Tx) -> Response:
    execute, emit = pools.execute_with(DRIVER, tx), pools.emit_with(tx)
    return response_of(run_blocking(shop.order(tx, execute, emit, request.get_data())))
