"""Flask with psycopg: an idempotent order.

Run it with ``DATABASE_URL=postgres://... python flask_psycopg.py 8000``.
"""

import os
import sys
import uuid
from typing import Any

from flask import Flask, request
from psycopg_pool import ConnectionPool

from hapax import Problem, codes
from hapax.flask import Hapax, Tx

pool = ConnectionPool(os.environ["DATABASE_URL"], open=True)
app = Flask(__name__)
hapax = Hapax(pool, tenant=lambda request: request.headers.get("x-user", "demo"))


@app.post("/orders")
@hapax.idempotent
def create(tx: Tx) -> Any:
    order = request.get_json()
    order_id = f"ord_{uuid.uuid4()}"
    tx.connection.execute(
        "INSERT INTO example_order (id, item, amount) VALUES (%s, %s, %s)",
        (order_id, order["item"], order["amount"]),
    )
    if order["item"] == "sold out":
        raise Problem(codes.CONFLICT, "the item is sold out")
    tx.emit("order.created", order, aggregate=("order", order_id))
    return {"id": order_id, **order}, 201, {"Location": f"/orders/{order_id}"}


if __name__ == "__main__":
    with pool.connection() as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS example_order "
            "(id text PRIMARY KEY, item text NOT NULL, amount bigint NOT NULL)"
        )
    app.run("127.0.0.1", int(sys.argv[1]), threaded=True)
