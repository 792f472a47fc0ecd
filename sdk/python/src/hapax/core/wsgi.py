"""The WSGI side: runs a view in the transaction of its key and returns the committed response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from . import codes
from .driver import Driver, run_blocking
from .errors import EngineError
from .flow import Flow
from .limits import RESPONSE_BYTES_MAX
from .message import Request, Response
from .operation import Operation
from .problem import Problem

View = Callable[[Any], Response]


def run(
    driver: Driver,
    operation: Operation,
    request: Request,
    tenant: Callable[[], str],
    view: View,
    report: Callable[[Exception], bool],
) -> Response:
    """Claim the key, run ``view`` with the transaction, and commit.

    Args:
        driver: a synchronous driver.
        operation: the settings of the operation.
        request: the request.
        tenant: returns the tenant of the request.
        view: receives the transaction and returns a complete response.
        report: reports an error of the program as the framework does. False: the error is raised,
            because the application has its own page for it.
    """
    if driver.is_async:
        raise EngineError(
            "this framework runs functions in threads, so it needs a synchronous engine: pass a "
            "psycopg_pool.ConnectionPool, a SQLAlchemy Engine or sessionmaker, or Django's database"
        )
    flow = Flow(driver, operation, request, tenant)
    taken = run_blocking(flow.begin())
    if taken is not None:
        return taken
    try:
        return _run_view(flow, view, report)
    finally:
        run_blocking(flow.abandon())


def _run_view(flow: Flow, view: View, report: Callable[[Exception], bool]) -> Response:
    try:
        response = view(flow.tx)
    except Exception as error:
        if flow.is_unexpected(error) and not report(error):
            raise
        return run_blocking(flow.fail(error))
    return run_blocking(flow.finish(response))


def collect(chunks: Any, content_type: str) -> bytes:
    """Read a streamed body to its end.

    Raises:
        Problem: it is an event stream, or too long to be stored.
    """
    if content_type.startswith("text/event-stream"):
        detail = (
            "this operation responds with an event stream, which cannot be stored and replayed; "
            "nothing was changed"
        )
        raise Problem(codes.INTERNAL, detail)
    body = bytearray()
    for chunk in chunks:
        body += chunk.encode() if isinstance(chunk, str) else chunk
        if len(body) > RESPONSE_BYTES_MAX:
            # `Flow.finish` refuses it.
            break
    return bytes(body)


def request_of(
    environ: Mapping[str, Any], template: str, headers: list[tuple[str, str]], body: bytes | None
) -> Request:
    """Build a request from a WSGI environment."""
    query = environ.get("QUERY_STRING", "").encode("latin-1")
    announced = environ.get("CONTENT_LENGTH") or "0"
    # A body that was cut off ends early, and not every framework notices.
    is_complete = body is None or (announced.isdigit() and int(announced) <= len(body))
    return Request(
        environ["REQUEST_METHOD"],
        template,
        raw_path(environ),
        query,
        headers,
        body,
        is_complete=is_complete,
        joins_headers=True,
    )


def raw_path(environ: Mapping[str, Any]) -> bytes:
    """Return the path as it was sent, if the server passes it on."""
    sent = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if sent:
        path = urlsplit(sent).path if "://" in sent else sent.split("?", 1)[0]
        return str(path).encode("latin-1")
    decoded = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return quote(decoded.encode("latin-1", "replace"), safe="/:@!$&'()*+,;=~").encode()


def headers_of(environ: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers of a WSGI environment."""
    pairs = [
        (name[5:].replace("_", "-").lower(), value)
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(name):
            pairs.append((name.replace("_", "-").lower(), environ[name]))
    return pairs
