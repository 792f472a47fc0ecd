"""The HTTP contract, for each framework with each driver, on a real server and a real database."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import psycopg
import pytest

from .conftest import Service, copy_of, until
from .proxy import Lose
from .services.shop import BINARY, STREAM

SERVICES = [
    ("fastapi", "psycopg"),
    ("fastapi", "psycopg-sync"),
    ("fastapi", "asyncpg"),
    ("fastapi", "sqlalchemy"),
    ("fastapi", "sqlalchemy-session"),
    ("fastapi", "sqlalchemy-sync"),
    ("starlette", "psycopg"),
    ("flask", "psycopg-sync"),
    ("django", "psycopg-sync"),
    ("django", "django-orm"),
]


@pytest.fixture(scope="module", params=SERVICES, ids="-".join)
def service(request: pytest.FixtureRequest, template: str) -> Iterator[Service]:
    framework, driver = request.param
    with copy_of(template) as database:
        running = Service(framework, driver, database)
        yield running
        running.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as threads:
        yield threads


def new_key() -> str:
    return str(uuid.uuid4())


def own(response: httpx.Response) -> list[tuple[str, str]]:
    """The headers that a replay must repeat."""
    apart = {"date", "server", "connection", "set-cookie", "idempotency-status"}
    return sorted(
        (n.lower(), v) for n, v in response.headers.multi_items() if n.lower() not in apart
    )


def check_replay(first: httpx.Response, again: httpx.Response) -> None:
    assert again.status_code == first.status_code
    assert again.content == first.content
    assert own(again) == own(first)
    assert again.headers["idempotency-status"] == "replayed"
    assert "set-cookie" not in again.headers


def check_problem(response: httpx.Response, status: int, code: str) -> dict[str, object]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, object] = response.json()
    assert problem["code"] == code
    assert problem["status"] == status
    assert problem["type"] == f"https://hapax.dev/problems/{code.lower()}"
    return problem


def test_the_first_response_is_stored_and_replayed_byte_for_byte(service: Service) -> None:
    key, events = new_key(), service.events()
    first = service.post(key, "first")
    assert first.status_code == 201, first.text
    assert first.headers["idempotency-status"] == "stored"
    assert first.headers["idempotency-key"] == key
    assert first.headers["set-cookie"] == "a=1"
    for _ in range(3):
        check_replay(first, service.post(key, "first"))
    assert service.orders("first") == 1
    assert service.events() == events + 1
    header = service.db.execute(
        "SELECT headers::json ->> 'idempotency_key_hash', tenant, payload FROM hapax.outbox_event "
        "ORDER BY id DESC LIMIT 1"
    ).fetchone()
    assert header is not None
    assert header[0] is not None
    assert header[1] == "demo"
    assert json.loads(header[2]) == {"id": first.json()["id"]}


def test_another_payload_under_the_key_is_a_mismatch(service: Service) -> None:
    key = new_key()
    assert service.post(key, "mismatch", 1).status_code == 201
    problem = check_problem(
        service.post(key, "mismatch", 2), 409, "CONFLICT.idempotency.payload_mismatch"
    )
    assert problem["retryable"] is False
    assert service.orders("mismatch") == 1


def test_tenants_have_their_own_keys(service: Service) -> None:
    key = new_key()
    assert service.post(key, "tenants", x_user="ann").headers["idempotency-status"] == "stored"
    assert service.post(key, "tenants", x_user="bob").headers["idempotency-status"] == "stored"
    assert service.orders("tenants") == 2


def test_a_key_is_required_and_must_parse(service: Service) -> None:
    check_problem(service.post(None), 400, "VALIDATION.idempotency_key.missing")
    for invalid in ("a b", '"open', "k" * 256, "derived:1", ""):
        check_problem(service.post(invalid), 400, "VALIDATION.idempotency_key.invalid")
    for pair in (("k", "l"), ("k", "k"), ('"k"', '"l"')):
        headers = [("Idempotency-Key", key) for key in pair]
        body = {"item": "twice", "amount": 1}
        twice = service.client.post(f"{service.url}/orders", json=body, headers=headers)
        check_problem(twice, 400, "VALIDATION.idempotency_key.invalid")
    assert service.orders("twice") == 0
    quoted = service.post('"a key";v=1', "quoted")
    assert quoted.headers["idempotency-key"] == '"a key"'
    assert service.orders("quoted") == 1


def test_a_duplicate_of_a_running_request_is_in_progress_and_then_replayed(
    service: Service, pool: ThreadPoolExecutor
) -> None:
    key = new_key()
    with psycopg.connect(service.database) as blocker:
        blocker.execute("SELECT pg_advisory_lock(42)")
        first = pool.submit(service.post, key, "block after")
        until(service.waiting, "the first request waits")
        duplicate = service.post(key, "block after")
        problem = check_problem(duplicate, 409, "CONFLICT.idempotency.in_progress")
        assert problem["retryable"] is True
        assert duplicate.headers["retry-after"] == "1"
        other = service.post(key, "block after", 7)
        check_problem(other, 409, "CONFLICT.idempotency.payload_mismatch")
        blocker.execute("SELECT pg_advisory_unlock(42)")
    assert first.result().headers["idempotency-status"] == "stored"
    check_replay(first.result(), service.post(key, "block after"))
    assert service.orders("block after") == 1


@pytest.mark.parametrize("item", ["raise before", "raise after"])
def test_a_handler_that_raises_releases_the_key(service: Service, item: str) -> None:
    key = new_key()
    for _ in range(2):
        response = service.post(key, item)
        check_problem(response, 500, "TRANSIENT.internal")
        assert "idempotency-status" not in response.headers
    assert service.orders(item) == 0
    assert service.post(key, "corrected").status_code == 201


def test_a_refused_statement_is_not_retryable_and_releases_the_key(service: Service) -> None:
    key = new_key()
    problem = check_problem(service.post(key, "negative", -1), 500, "INTERNAL.statement")
    assert problem["retryable"] is False
    assert service.post(key, "negative", 1).status_code == 201


def test_an_invalid_event_releases_the_key(service: Service) -> None:
    check_problem(service.post(new_key(), "bad event"), 500, "INTERNAL")
    assert service.orders("bad event") == 0


def test_a_refusal_is_stored_without_its_effect(service: Service) -> None:
    key, events = new_key(), service.events()
    first = service.post(key, "sold out")
    check_problem(first, 409, "CONFLICT.state")
    assert first.headers["idempotency-status"] == "stored"
    check_replay(first, service.post(key, "sold out"))
    assert service.orders("sold out") == 0
    assert service.events() == events


def test_a_client_error_releases_the_key(service: Service) -> None:
    for item, statuses in (("bad", {400}), ("teapot", {403, 418})):
        key = new_key()
        response = service.post(key, item)
        assert response.status_code in statuses
        assert "idempotency-status" not in response.headers
        assert service.post(key, "good").headers["idempotency-status"] == "stored"
        assert service.orders(item) == 0


def test_bytes_are_replayed_as_they_were_sent(service: Service) -> None:
    for item, body in (("binary", BINARY), ("stream", b"".join(STREAM))):
        key = new_key()
        first = service.post(key, item)
        assert first.content == body
        assert first.headers["x-latin"] == "caf\xe9"
        check_replay(first, service.post(key, item))
        assert service.orders(item) == 1


@pytest.mark.parametrize(
    ("item", "code"),
    [
        ("endless", "TRANSIENT.response_too_large"),
        ("large", "TRANSIENT.response_too_large"),
        ("events", "INTERNAL"),
    ],
)
def test_a_response_that_cannot_be_stored_is_refused(
    service: Service, item: str, code: str
) -> None:
    check_problem(service.post(new_key(), item), 500, code)
    assert service.orders(item) == 0


def test_two_hundred_duplicates_have_one_effect(service: Service, pool: ThreadPoolExecutor) -> None:
    key = new_key()

    def send(_: int) -> httpx.Response:
        while True:
            response = service.post(key, "duplicates")
            if response.status_code != 409:
                return response
            check_problem(response, 409, "CONFLICT.idempotency.in_progress")

    responses = list(pool.map(send, range(200)))
    assert {response.content for response in responses} == {responses[0].content}
    statuses = [response.headers["idempotency-status"] for response in responses]
    assert statuses.count("stored") == 1
    assert statuses.count("replayed") == 199
    assert service.orders("duplicates") == 1


def test_requests_that_wait_for_a_connection_leave_threads_to_those_that_have_one(
    service: Service,
) -> None:
    # More than a framework has threads, which are more than a pool has connections.
    with ThreadPoolExecutor(90) as threads:
        responses = list(threads.map(lambda _: service.post(new_key(), "flood"), range(90)))
    assert {response.status_code for response in responses} == {201}
    assert service.orders("flood") == 90


@pytest.mark.parametrize("lost", [Lose.COMMIT_REQUEST, Lose.COMMIT_RESPONSE])
def test_a_commit_whose_result_is_lost_is_decided_by_the_key(service: Service, lost: Lose) -> None:
    key, item, before = new_key(), f"lost {lost.value}", service.proxy.lost
    service.proxy.lose(lost)
    first = service.post(key, item)
    assert service.proxy.lost == before + 1
    if lost is Lose.COMMIT_RESPONSE:
        assert first.status_code == 201, first.text
        assert first.headers["idempotency-status"] == "stored"
        assert service.orders(item) == 1
        check_replay(first, service.post(key, item))
    else:
        problem = check_problem(first, 503, "DEPENDENCY.unavailable")
        assert problem["retryable"] is True
        assert first.headers["retry-after"] == "1"
        assert service.orders(item) == 0
        assert service.post(key, item).headers["idempotency-status"] == "stored"
    assert service.orders(item) == 1


def test_a_broken_connection_in_the_handler_is_unavailable(
    service: Service, pool: ThreadPoolExecutor
) -> None:
    key = new_key()
    with psycopg.connect(service.database) as blocker:
        blocker.execute("SELECT pg_advisory_lock(42)")
        first = pool.submit(service.post, key, "block before")
        until(service.waiting, "the request waits")
        service.db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
            "AND objid = 42 AND NOT granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        check_problem(first.result(), 503, "DEPENDENCY.unavailable")
    assert service.post(key, "block before").status_code == 201
    assert service.orders("block before") == 1


@pytest.mark.parametrize("item", ["block before", "block after", "block commit"])
def test_a_killed_process_leaves_one_effect_after_the_retry(
    service: Service, pool: ThreadPoolExecutor, item: str
) -> None:
    key, before = new_key(), service.orders(item)
    with psycopg.connect(service.database) as blocker:
        blocker.execute("SELECT pg_advisory_lock(42)")
        first: Future[httpx.Response] = pool.submit(service.post, key, item)
        until(service.waiting, "the request waits")
        service.kill()
        with pytest.raises(httpx.TransportError):
            first.result()
        service.start()
        blocker.execute("SELECT pg_advisory_unlock(42)")
    until(lambda: service.post(key, item).status_code == 201, "the retry succeeds")
    assert service.post(key, item).headers["idempotency-status"] == "replayed"
    assert service.orders(item) == before + 1


def test_the_time_of_the_client_is_respected(service: Service) -> None:
    key = new_key()
    check_problem(service.post(key, x_request_timeout="soon"), 400, "VALIDATION.request_timeout")
    late = service.post(key, "late", x_request_timeout="0")
    check_problem(late, 504, "DEPENDENCY.timeout")
    assert service.orders("late") == 0
    assert service.post(key, "late", x_request_timeout="5000").status_code == 201


def test_a_body_that_is_too_long_is_refused(service: Service) -> None:
    body = json.dumps({"item": "x" * (1024 * 1024), "amount": 1})
    headers = {"Idempotency-Key": new_key(), "Content-Type": "application/json"}
    response = service.client.post(f"{service.url}/orders", content=body, headers=headers)
    check_problem(response, 413, "VALIDATION.body.too_large")


def test_a_body_that_is_cut_off_has_no_effect(service: Service) -> None:
    body, key = b'{"item": "cut", "amount": 1}', new_key()
    head = (
        f"POST /orders HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        f"idempotency-key: {key}\r\ncontent-length: {len(body) + 9}\r\nconnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", service.port)) as connection:
        connection.sendall(head.encode() + body)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    assert service.orders("cut") == 0
    assert service.post(key, "cut").headers["idempotency-status"] == "stored"


def test_ambiguous_json_is_refused(service: Service) -> None:
    headers = {"Idempotency-Key": new_key(), "Content-Type": "application/json"}
    body = b'{"item": "tea", "amount": 1, "amount": 2}'
    response = service.client.post(f"{service.url}/orders", content=body, headers=headers)
    check_problem(response, 400, "VALIDATION.json")


def test_no_connection_and_no_transaction_is_left_open(service: Service) -> None:
    left = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND starts_with(state, 'idle in transaction')"
    )
    until(lambda: service.count(left) == 0, "all transactions have ended")
    for _ in range(10):
        assert service.post(new_key(), "again").status_code == 201
