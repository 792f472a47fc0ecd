"""Flask, served by waitress."""

import waitress
from flask import Flask, jsonify, request

import ledger
import reads
import shop
from hapax.flask import Hapax

THREADS = 16


def serve(driver, port):
    reads.pool_sync.open()
    waitress.serve(build(driver), host="127.0.0.1", port=port, threads=THREADS)


def build(driver):
    app = Flask(__name__)
    hapax = Hapax(driver.engine(), tenant=tenant, retention=shop.RETENTION)

    @app.post("/orders")
    @hapax.idempotent
    def create(tx):
        order = shop.create_order_sync(tx, driver, request.get_data())
        return jsonify(order), 201, shop.location(order)

    @app.get("/orders")
    def orders():
        return reads.orders_sync(tenant(request))

    @app.post("/webhooks")
    def webhook():
        status, headers, body = ledger.receive_sync(request.headers, request.get_data())
        return body, status, headers

    return app


def tenant(sent):
    return shop.tenant_of(sent.headers.get("authorization"))
