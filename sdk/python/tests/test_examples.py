"""The examples, each in its own process on an empty database."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from hapax.core.webhook import parse_signer, sign

from .conftest import until
from .provider import Provider

EXAMPLES = Path(__file__).parent / "../examples"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@contextmanager
def running(example: str, database: str, **environment: str) -> Iterator[str]:
    """Run an example and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(EXAMPLES / example), str(port)]
    process = subprocess.Popen(
        command,
        env=os.environ | {"DATABASE_URL": database} | environment,
        stderr=subprocess.DEVNULL,
    )

    def is_up() -> bool:
        assert process.poll() is None, f"{example} has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(is_up, f"{example} accepts connections")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def count(database: str, table: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("example", ["fastapi_sqlalchemy.py", "flask_psycopg.py", "django_orm.py"])
def test_an_example_has_one_effect_per_key(example: str, database: str, tmp_path: Path) -> None:
    with running(example, database) as address, httpx.Client() as client:

        def post(item: str, key: str) -> httpx.Response:
            headers = {"Idempotency-Key": key}
            return client.post(
                f"{address}/orders", json={"item": item, "amount": 5}, headers=headers
            )

        first, again = post("tea", "a"), post("tea", "a")
        assert (first.status_code, again.status_code) == (201, 201), first.text
        assert first.content == again.content
        assert again.headers["idempotency-status"] == "replayed"
        assert post("milk", "a").status_code == 409
        assert post("sold out", "b").json()["code"] == "CONFLICT.state"
        program = [sys.executable, str(EXAMPLES / "retrying_client.py"), f"{address}/orders"]
        sent = subprocess.run(
            [*program, str(tmp_path / "journal"), "order 7"],
            capture_output=True,
            check=True,
            text=True,
        )
        assert sent.stdout.startswith("201 ord_")
    assert count(database, "example_order") == 2
    assert count(database, "hapax.outbox_event") == 2


def test_the_webhook_of_the_example_is_processed_once(database: str) -> None:
    body, now = b'{"amount":5}', int(time.time())
    headers = {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(now),
        "webhook-signature": sign("evt_1", now, body, [parse_signer(SECRET)]),
    }
    with running("fastapi_sqlalchemy.py", database) as address, httpx.Client() as client:
        for expected in (204, 204):
            url = f"{address}/webhooks/bank"
            assert client.post(url, content=body, headers=headers).status_code == expected
        refused = client.post(f"{address}/webhooks/bank", content=b"{}", headers=headers)
        assert refused.json()["code"] == "AUTH.signature"
    assert count(database, "example_ledger") == 1


def test_the_payments_of_the_example_are_charged_once(database: str) -> None:
    provider = Provider()
    with (
        running("fastapi_payments.py", database, PROVIDER_URL=provider.url) as address,
        httpx.Client() as client,
    ):

        def post(amount: object, key: str) -> httpx.Response:
            headers = {"Idempotency-Key": key}
            return client.post(f"{address}/payments", json={"amount": amount}, headers=headers)

        assert post("much", "p").status_code == 422
        provider.decide = lambda _: "lost"
        assert post(5, "p").status_code == 504
        paid, again = post(5, "p"), post(5, "p")
        assert paid.json() == {"id": "ch_1", "amount": 5}
        assert again.headers["idempotency-status"] == "replayed"
        provider.decide = lambda _: "decline"
        declined = post(5, "q")
        assert declined.json()["code"] == "PROVIDER.card.declined"
        assert declined.headers["idempotency-status"] == "stored"
    provider.close()
    assert len(provider.charges) == 1
    assert count(database, "example_charge") == 1
    assert count(database, "hapax.outbox_event") == 1


def test_every_example_is_run() -> None:
    source = Path(__file__).read_text()
    assert [file.name for file in EXAMPLES.glob("*.py") if f'"{file.name}"' not in source] == []
