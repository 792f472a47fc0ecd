"""The retry client: httpx, as functions and as coroutines, and requests."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

from hapax.client import (
    Backoff,
    Budget,
    FileJournal,
    JournalError,
    Policy,
    Retries,
    SendError,
    StaleKeyError,
    Stopped,
    intent,
)
from hapax.client.httpx import AsyncRetryTransport, RetryTransport
from hapax.client.requests import RetryAdapter

FAST = Policy(Backoff(base=0.001, cap=0.002, attempts_max=5, total=30.0), Budget.unbounded())
ORDER = b'{"amount":500}'

Canned = tuple[int, dict[str, str], bytes]
Send = Callable[..., Any]


class Server:
    """Sends the next of its responses for each request. ``None`` closes the connection."""

    def __init__(self) -> None:
        self.responses: list[Canned | None] = []
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.seen.append((self.command, headers, body))
                response = outer.responses.pop(0) if outer.responses else (200, {}, b"done")
                if response is None:
                    self.close_connection = True
                    return
                status, extra, content = response
                self.send_response(status)
                for name, value in {"content-length": str(len(content)), **extra}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
                self.close_connection = "content-length" in extra

            do_GET = do_POST  # noqa: N815 - names of the standard library

            def log_message(self, *_: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/orders"

    @property
    def keys(self) -> list[str | None]:
        return [headers.get("idempotency-key") for _, headers, _ in self.seen]


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


def with_httpx(retries: Retries, method: str, url: str, **options: Any) -> Any:
    with httpx.Client(transport=RetryTransport(retries), timeout=30) as client:
        response = client.request(method, url, **options)
    return response.status_code, response.content, response.extensions["hapax"]


def with_async_httpx(retries: Retries, method: str, url: str, **options: Any) -> Any:
    async def send() -> Any:
        async with httpx.AsyncClient(transport=AsyncRetryTransport(retries), timeout=30) as client:
            return await client.request(method, url, **options)

    response = asyncio.run(send())
    return response.status_code, response.content, response.extensions["hapax"]


def with_requests(retries: Retries, method: str, url: str, **options: Any) -> Any:
    if "content" in options:
        options["data"] = options.pop("content")
    with requests.Session() as session:
        session.mount("http://", RetryAdapter(retries))
        response: Any = session.request(method, url, timeout=30, **options)
    return response.status_code, response.content, response.hapax


@pytest.fixture(params=[with_httpx, with_async_httpx, with_requests])
def send(request: pytest.FixtureRequest) -> Send:
    chosen: Send = request.param
    return chosen


def problem(code: str) -> bytes:
    return json.dumps({"code": code}).encode()


PROBLEM = {"content-type": "application/problem+json"}


def test_every_attempt_has_one_key_and_the_same_bytes(server: Server, send: Send) -> None:
    server.responses = [
        (503, {**PROBLEM, "retry-after": "0"}, problem("DEPENDENCY.unavailable")),
        None,
        (409, {"retry-after": "0"}, b""),
        (201, {"idempotency-status": "stored"}, b'{"id":1}'),
    ]
    status, body, outcome = send(Retries(FAST), "POST", server.url, content=ORDER)
    assert (status, body) == (201, b'{"id":1}')
    assert len(set(server.keys)) == 1
    assert server.keys[0] == outcome.key
    assert {sent for _, _, sent in server.seen} == {ORDER}
    numbers = [headers["idempotency-attempt"] for _, headers, _ in server.seen]
    assert numbers == ["1", "2", "3", "4"]
    assert all(0 < int(headers["x-request-timeout"]) <= 30000 for _, headers, _ in server.seen)
    assert [attempt.status for attempt in outcome.attempts] == [503, None, 409, 201]
    assert outcome.attempts[0].code == "DEPENDENCY.unavailable"
    assert outcome.stopped is Stopped.ANSWERED


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (400, {}, b""),
        (409, {}, b""),
        (500, PROBLEM, problem("INTERNAL.statement")),
        (503, {"idempotency-status": "stored"}, b""),
    ],
)
def test_a_final_response_is_not_retried(
    server: Server, send: Send, status: int, headers: dict[str, str], body: bytes
) -> None:
    server.responses = [(status, headers, body)]
    found, _, outcome = send(Retries(FAST), "POST", server.url, content=ORDER)
    assert (found, len(server.seen), outcome.stopped) == (status, 1, Stopped.ANSWERED)


def test_the_attempts_and_the_budget_are_bounded(server: Server, send: Send) -> None:
    server.responses = [(503, {}, b"")] * 20
    status, _, outcome = send(Retries(FAST), "POST", server.url, content=ORDER)
    assert (status, len(server.seen), outcome.stopped) == (503, 5, Stopped.EXHAUSTED)
    retries = Retries(Policy(FAST.backoff, Budget(max=2000, initial=2000, per_second=0)))
    _, _, outcome = send(retries, "POST", server.url, content=ORDER)
    assert (len(server.seen), outcome.stopped) == (5 + 3, Stopped.BUDGET)


def test_a_wait_past_the_deadline_is_handed_to_the_caller(server: Server, send: Send) -> None:
    server.responses = [(429, {"retry-after": "60"}, b"")]
    _, _, outcome = send(Retries(FAST), "POST", server.url, content=ORDER)
    assert (outcome.stopped, outcome.retry_after) == (Stopped.RETRY_AFTER, 60.0)


def test_retry_after_is_a_minimum(server: Server, send: Send) -> None:
    server.responses = [(503, {"retry-after": "1"}, b"")]
    began = time.monotonic()
    _, _, outcome = send(Retries(FAST), "POST", server.url, content=ORDER)
    assert time.monotonic() - began >= 1.0
    assert outcome.attempts[1].delay >= 1.0


def test_a_key_can_be_given_or_left_out(server: Server, send: Send) -> None:
    retries = Retries(FAST)
    send(retries, "POST", server.url, headers={"Idempotency-Key": '"my key"'})
    with intent(key="other"):
        send(retries, "POST", server.url)
    send(retries, "GET", server.url)
    server.responses = [(503, {}, b"")]
    with intent(keyless=True):
        _, _, outcome = send(retries, "POST", server.url, headers={"Idempotency-Key": "dropped"})
    assert server.keys == ['"my key"', "other", None, None]
    assert outcome.stopped is Stopped.UNREPEATABLE


def test_no_connection_is_retried_without_a_key_too(send: Send) -> None:
    attempts: list[Any] = []
    retries = Retries(FAST, watch=lambda attempt, wait: attempts.append((attempt, wait)))
    with (
        intent(keyless=True),
        pytest.raises((httpx.ConnectError, requests.ConnectionError)) as lost,
    ):
        send(retries, "POST", "http://127.0.0.1:1/")
    assert len(attempts) == 5
    assert attempts[-1][1] is None
    found: Any = lost.value
    assert found.hapax.stopped is Stopped.EXHAUSTED


def test_a_response_that_breaks_off_is_a_failed_attempt(server: Server, send: Send) -> None:
    server.responses = [(200, {"content-length": "100"}, b"half")]
    status, body, outcome = send(Retries(FAST), "POST", server.url, content=ORDER)
    assert (status, body, len(outcome.attempts)) == (200, b"done", 2)


def test_a_compressed_response_is_passed_on_as_it_is(server: Server, send: Send) -> None:
    import gzip

    server.responses = [(200, {"content-encoding": "gzip"}, gzip.compress(b"plain"))]
    assert send(Retries(FAST), "POST", server.url, content=ORDER)[1] == b"plain"


def test_a_stream_is_sent_with_the_same_bytes_again(server: Server, send: Send) -> None:
    server.responses = [(503, {}, b"")]
    is_async = send is with_async_httpx

    async def chunks() -> Any:
        yield b"a"
        yield b"b"

    content: Any = chunks() if is_async else iter([b"a", b"b"])
    send(Retries(FAST), "POST", server.url, content=content)
    assert [body for _, _, body in server.seen] == [b"ab", b"ab"]


def test_a_journal_continues_an_unfinished_operation(
    server: Server, send: Send, tmp_path: Path
) -> None:
    journal = FileJournal(tmp_path / "orders.journal")
    server.responses = [(503, {}, b"")] * 5
    retries = Retries(FAST, journal=journal)
    send(retries, "POST", server.url, content=ORDER)
    _, _, resumed = send(retries, "POST", server.url, content=ORDER)
    assert resumed.is_resumed
    assert len(set(server.keys)) == 1
    _, _, fresh = send(retries, "POST", server.url, content=ORDER)
    with intent(name="another"):
        send(retries, "POST", server.url, content=ORDER)
    assert not fresh.is_resumed
    assert len(set(server.keys)) == 3


def test_a_refusal_forgets_a_key_only_if_no_attempt_is_in_doubt(
    server: Server, send: Send, tmp_path: Path
) -> None:
    retries = Retries(FAST, journal=FileJournal(tmp_path / "journal"))
    server.responses = [(401, {}, b"")]
    send(retries, "POST", server.url, content=ORDER)
    server.responses = [None, (401, {}, b"")]
    send(retries, "POST", server.url, content=ORDER)
    send(retries, "POST", server.url, content=ORDER)
    assert server.keys[0] != server.keys[1]
    assert server.keys[1] == server.keys[2] == server.keys[3]


def test_a_stale_key_is_not_sent(server: Server, send: Send, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    server.responses = [(503, {}, b"")] * 5
    retries = Retries(FAST, journal=FileJournal(path))
    send(retries, "POST", server.url, content=ORDER)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    day = 24 * 3600 * 1000
    path.write_text(
        "".join(json.dumps({**line, "at_ms": line["at_ms"] - day}) + "\n" for line in lines)
    )
    with pytest.raises(StaleKeyError, match="the service may have deleted it"):
        send(retries, "POST", server.url, content=ORDER)
    assert len(server.seen) == 5
    with pytest.raises(SendError, match="under another key"), intent(key="mine"):
        send(retries, "POST", server.url, content=ORDER)
    with intent(again=True):
        _, _, outcome = send(retries, "POST", server.url, content=ORDER)
    assert not outcome.is_resumed


def test_a_torn_line_is_ignored_and_another_invalid_line_is_an_error(
    server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "journal"
    path.write_text('{"state":"open","key":"k","at_ms":1,"met')
    retries = Retries(FAST, journal=FileJournal(path))
    with_httpx(retries, "POST", server.url, content=ORDER)
    path.write_text("nonsense\n")
    with pytest.raises(JournalError, match="line 1"):
        with_httpx(retries, "POST", server.url, content=ORDER)
    with pytest.raises(JournalError, match="cannot be used"):
        with_httpx(Retries(FAST, journal=FileJournal(tmp_path / "no/journal")), "POST", server.url)
    assert len(server.seen) == 1


def test_a_long_journal_keeps_only_what_is_unfinished(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    line = {"state": "open", "at_ms": 1, "method": "POST", "url": "http://a/", "body": "0" * 64}
    with path.open("w") as file:
        for number in range(6000):
            file.write(json.dumps({**line, "key": f"k{number}"}) + "\n")
            if number:
                file.write(json.dumps({"state": "done", "key": f"k{number}", "at_ms": 2}) + "\n")
    assert path.stat().st_size > 1024 * 1024
    with_httpx(Retries(FAST, journal=FileJournal(path)), "POST", server.url, content=ORDER)
    states = [json.loads(text)["state"] for text in path.read_text().splitlines()]
    assert states == ["open", "open", "done"]


def test_a_killed_client_continues_under_its_key(server: Server, tmp_path: Path) -> None:
    program = f"""
import httpx
from hapax.client import FileJournal, Retries
from hapax.client.httpx import RetryTransport
transport = RetryTransport(Retries(journal=FileJournal({str(tmp_path / "journal")!r})))
httpx.Client(transport=transport).post({server.url!r}, content={ORDER!r})
"""
    server.responses = [(503, {"retry-after": "9"}, b"")]
    client = subprocess.Popen([sys.executable, "-c", program])
    until = time.monotonic() + 10
    while not server.seen:
        assert time.monotonic() < until
        time.sleep(0.01)
    client.kill()
    client.wait()
    subprocess.run([sys.executable, "-c", program], check=True)
    assert len(server.keys) == 2
    assert server.keys[0] == server.keys[1]
