"""The HTTP contract on top of the SQL contract: `once` runs a handler once per Idempotency-Key."""

import asyncio
import functools
import json
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from hashlib import sha256

import psycopg
from fastapi import Request, Response
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

BODY_BYTES_MAX = 1024 * 1024
WAIT = 1.0  # seconds that a duplicate waits for the first request
# Statuses of refusals: their response is stored, and their effect is rolled back.
REFUSALS = {402, 404, 409, 410, 422}
# Headers that are part of the request's fingerprint if they are sent.
CONDITIONS = ("if-match", "if-none-match", "if-unmodified-since")
# The status and title of each problem code.
PROBLEMS = {
    "VALIDATION.idempotency_key.missing": (400, "The Idempotency-Key header is missing"),
    "VALIDATION.idempotency_key.invalid": (400, "The Idempotency-Key header does not parse"),
    "VALIDATION.body.too_large": (413, "The body is too large"),
    "CONFLICT.idempotency.payload_mismatch": (409, "The key was used for another request"),
    "CONFLICT.idempotency.in_progress": (409, "A request with this Idempotency-Key is still running"),
    "CONFLICT.idempotency.expired": (410, "The Idempotency-Key has expired"),
    "CONFLICT.inbox.payload_mismatch": (409, "The webhook-id was used for another payload"),
    "DEPENDENCY.unavailable": (503, "The service cannot do this now"),
    "INTERNAL.statement": (500, "The database refused what the service wrote"),
    "INTERNAL": (500, "The service failed"),
}
RETRYABLE = {"CONFLICT.idempotency.in_progress", "DEPENDENCY.unavailable"}

Handler = Callable[[psycopg.AsyncConnection, str, bytes], Awaitable[Response]]


class Problem(Exception):
    """An error response, as problem+json (RFC 9457)."""

    def __init__(self, code: str, detail: str, status: int | None = None):
        usual, title = PROBLEMS.get(code, (400, "The request cannot be served"))
        self.status = status or usual
        self.words = {
            "type": f"https://hapax.dev/problems/{code.lower()}", "title": title, "status": self.status,
            "detail": detail, "code": code, "retryable": code in RETRYABLE,
        }

    def response(self) -> Response:
        body = json.dumps(self.words | {"request_id": str(uuid.uuid4())})
        headers = {"Retry-After": "1"} if self.words["retryable"] else {}
        return Response(body, self.status, headers, "application/problem+json")


def guarded(route):
    """Turns errors of a route into problem responses. The transaction is already rolled back."""

    @functools.wraps(route)
    async def guard(*args, **kwargs) -> Response:
        try:
            return await route(*args, **kwargs)
        except Problem as problem:
            return problem.response()
        except Exception as error:
            return problem_of(error).response()

    return guard


def problem_of(error: Exception) -> Problem:
    """Distinguishes transient errors from those that a retry would get again."""
    # A server that was demoted to a standby is read-only; the retry reaches the new primary.
    passing = (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction)
    if isinstance(error, passing):
        # No connection, a broken connection, or a conflict with another transaction. If it broke
        # during the commit, the outcome is unknown; the retry under the same key finds it out.
        logging.warning("database: %s", error)
        return Problem("DEPENDENCY.unavailable", "try again")
    if isinstance(error, psycopg.Error) and error.sqlstate:
        # For example a violated constraint, a value out of range, or a missing table. The message
        # may repeat values of the row, so it is not logged.
        logging.error("statement refused: %s, constraint %s", error.sqlstate, error.diag.constraint_name)
        detail = "nothing was changed; the same request would be refused again"
        return Problem("INTERNAL.statement", detail)
    logging.error("the service failed", exc_info=error)
    return Problem("INTERNAL", "nothing was changed; the same request would fail again")


@guarded
async def once(
    pool: AsyncConnectionPool, request: Request, tenant: str, operation: str, handler: Handler
) -> Response:
    """Runs `handler` in the transaction that claims the key, or returns the stored response."""
    key = key_of(request)
    answer = await claimed(pool, request, (tenant, operation, key), handler)
    bare = re.fullmatch(r'[!#-~]+', key)
    answer.headers["Idempotency-Key"] = key if bare else '"' + re.sub(r'(["\\])', r"\\\1", key) + '"'
    return answer


@guarded
async def claimed(
    pool: AsyncConnectionPool, request: Request, scope: tuple[str, str, str], handler: Handler
) -> Response:
    body = await body_of(request)
    until, pause = time.monotonic() + WAIT, 0.005
    while True:
        async with pool.connection() as tx:  # one transaction: commits at its end, or rolls back
            found = await tx.execute(
                "SELECT outcome, status, headers, body FROM hapax.claim(%s, %s, %s, %s, wait => '0')",
                (*scope, fingerprint(request, scope[1], body)),
            )
            outcome, *stored = await found.fetchone()
            if outcome == "open":
                answer = await run(tx, scope, handler, body)
        if outcome == "open":
            return answer
        if outcome != "in_progress" or time.monotonic() > until:
            return known(outcome, *stored)
        # Wait outside the transaction, without holding a connection.
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.1)


async def run(
    tx: psycopg.AsyncConnection, scope: tuple[str, str, str], handler: Handler, body: bytes
) -> Response:
    """Runs the handler and stores its response; rolls back unless the response is to be stored."""
    async with tx.transaction():  # a savepoint
        try:
            answer = await handler(tx, scope[0], body)
        except Problem as problem:
            answer = problem.response()
        if answer.status_code >= 400:
            raise psycopg.Rollback
    if answer.status_code >= 400 and answer.status_code not in REFUSALS:
        await tx.rollback()  # releases the key, so that the corrected request can use it
        return answer
    headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in answer.raw_headers]
    await tx.execute(
        "SELECT hapax.complete(%s, %s, %s, %s, %s, %s)",
        (*scope, answer.status_code, Jsonb(headers), answer.body),
    )
    answer.headers["Idempotency-Status"] = "stored"
    return answer


def known(outcome: str, status: int, headers: list[list[str]], body: bytes) -> Response:
    if outcome == "replay":
        answer = Response(body, status)
        answer.raw_headers += [(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers]
        answer.headers["Idempotency-Status"] = "replayed"
        return answer
    if outcome == "mismatch":
        raise Problem("CONFLICT.idempotency.payload_mismatch", "use a new key for a new request")
    if outcome == "gone":
        raise Problem("CONFLICT.idempotency.expired", "look up the outcome before you retry")
    raise Problem("CONFLICT.idempotency.in_progress", "retry in a moment")


def key_of(request: Request) -> str:
    """Reads the key: a structured-field string, or the same text without quotes."""
    values = request.headers.getlist("idempotency-key")
    if not values:
        raise Problem("VALIDATION.idempotency_key.missing", "send a key with this request")
    text = values[0].strip()
    quoted = re.fullmatch(r'"((?:[ !#-\[\]-~]|\\["\\])*)"(?:\s*;\s*[a-z*][^;"]*)*', text)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else text
    well_formed = quoted or re.fullmatch(r"[!#-~]+", text)
    if len(values) > 1 or not well_formed or not 1 <= len(key) <= 255:
        raise Problem("VALIDATION.idempotency_key.invalid", "1 to 255 bytes of visible ASCII, once")
    if key.startswith("derived:"):
        raise Problem("VALIDATION.idempotency_key.invalid", "the prefix derived: is reserved")
    return key


def fingerprint(request: Request, operation: str, body: bytes) -> bytes:
    """Hashes the parts of the request with their lengths, so that different requests differ."""
    content_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    parts = [
        operation.encode(), request.scope["raw_path"], request.scope["query_string"],
        content_type.encode("latin-1"), sha256(body).digest(),
    ]
    for name in CONDITIONS:  # another condition is another request
        if values := request.headers.getlist(name):
            parts += [name.encode(), ", ".join(value.strip(" \t") for value in values).encode("latin-1")]
    return sha256(b"\x01" + b"".join(len(p).to_bytes(8, "big") + p for p in parts)).digest()


async def body_of(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise Problem("VALIDATION.body.too_large", f"at most {BODY_BYTES_MAX} bytes")
    return bytes(body)
