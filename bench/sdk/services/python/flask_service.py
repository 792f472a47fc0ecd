"""Orders with Flask. VARIANT chooses how a retry is recognized."""

from typing import Any

from flask import Flask, request
from psycopg_pool import ConnectionPool
from shop import DATABASE_URL, HAS_EVENT, INSERT, IS_HAPAX, POOL, VARIANT

pool = ConnectionPool(DATABASE_URL, **POOL)
pool.open()
app = Flask(__name__)


def insert(connection: Any) -> dict[str, Any]:
    order = request.get_json()
    cursor = connection.execute(INSERT, (order["item"], order["amount"]))
    return {"id": cursor.fetchone()[0], "item": order["item"], "amount": order["amount"]}


def create_bare() -> tuple[dict[str, Any], int]:
    with pool.connection() as connection:
        return insert(connection), 201


if IS_HAPAX:
    from hapax.flask import Hapax, Tx

    hapax = Hapax(pool, tenant=lambda _: "bench")

    @app.post("/orders")
    @hapax.idempotent
    def create(tx: Tx) -> tuple[dict[str, Any], int]:
        created = insert(tx.connection)
        if HAS_EVENT:
            tx.emit("order.created", created, aggregate=("order", str(created["id"])))
        return created, 201

elif VARIANT == "flask-once-memory":
    import flask_once

    app.cache = {}
    flask_once.attach(app, app.cache)
    app.post("/orders")(flask_once.idempotent()(create_bare))
else:
    app.post("/orders")(create_bare)
