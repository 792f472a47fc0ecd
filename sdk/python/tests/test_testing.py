"""The pytest plugin, on operations that are idempotent and on some that are not."""

from typing import Any

import pytest
from flask import Flask, Response, request
from psycopg_pool import ConnectionPool

from hapax import Problem, codes
from hapax.flask import Hapax, Tx, problem_response
from hapax.testing import Check, assert_idempotent


def test_an_idempotent_operation_passes(database: str, check_idempotent: Check) -> None:
    with ConnectionPool(database, open=True) as pool:
        app = Flask(__name__)
        hapax = Hapax(pool, tenant="demo")

        @app.post("/orders/<int:id>")
        @hapax.idempotent(retention=60)
        def create(tx: Tx, id: int) -> Any:
            tx.connection.execute("INSERT INTO ledger_entry VALUES ('t', %s)", [id])
            return {"id": id}, 201

        def count() -> int:
            with pool.connection() as connection:
                row = connection.execute("SELECT count(*) FROM ledger_entry").fetchone()
            assert row is not None
            return int(row[0])

        client = app.test_client()

        def send(key: str, **body: Any) -> Any:
            return client.post("/orders/7", json=body, headers={"Idempotency-Key": key})

        first = check_idempotent(send, other=lambda key: send(key, a=1), effects=count)
        assert first.get_json() == {"id": 7}
        with pool.connection() as connection:
            row = connection.execute("SELECT operation FROM hapax.idempotency_key").fetchone()
        assert row == ("POST /orders/{id}",)


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([None], "not stored"),
        (["stored", "stored"], "not replayed"),
        (["stored", "replayed", "replayed"], "is not"),
    ],
)
def test_another_operation_fails(headers: list[str | None], message: str) -> None:
    app = Flask(__name__)
    bodies = iter(range(9))

    @app.post("/")
    def create() -> Response:
        assert request.headers["Idempotency-Key"]
        response = Response(str(next(bodies)))
        status = headers.pop(0)
        if status:
            response.headers["Idempotency-Status"] = status
        return response

    client = app.test_client()
    with pytest.raises(pytest.fail.Exception, match=message):
        assert_idempotent(lambda key: client.post("/", headers={"Idempotency-Key": key}))


def test_a_problem_of_another_route_of_flask_is_a_response() -> None:
    app = Flask(__name__)
    app.register_error_handler(Problem, problem_response)

    @app.post("/")
    def create() -> Response:
        raise Problem(codes.AUTH_SIGNATURE)

    response = app.test_client().post("/")
    assert (response.status_code, response.get_json()["code"]) == (401, "AUTH.signature")
    assert response.content_type == "application/problem+json"
