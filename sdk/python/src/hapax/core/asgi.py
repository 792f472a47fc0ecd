"""The ASGI side: holds a response back until it is committed, and sees the bytes that are sent.

The middleware puts an :class:`Exchange` into the scope of each request. It does nothing until the
route begins it. From then on, what the application sends is kept, stored and committed, and only
then sent to the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar

from . import codes
from .driver import Driver, run_in_threads
from .errors import EngineError
from .flow import Flow, too_large
from .limits import RESPONSE_BYTES_MAX
from .message import Headers, Request, Response, first
from .operation import Operation
from .problem import Problem, request_id

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
InThread = Callable[..., Awaitable[Any]]
T = TypeVar("T")

SCOPE_KEY = "hapax"
_NO_LENGTH = frozenset({204, 304})
_running: set[asyncio.Future[Any]] = set()
"""Steps that begin or end a transaction. The event loop has only weak references to tasks."""


@dataclass(frozen=True)
class Threads:
    """Threads for synchronous drivers.

    A claim may wait for a connection until another request returns one, for which that request
    needs a thread. If both took threads of one pool, claims could occupy all of them.

    Attributes:
        claim: runs a function in a thread for claims.
        end: runs a function in a thread for the end of transactions.
    """

    claim: InThread
    end: InThread


class Decided(Exception):  # noqa: N818 - it is not an error
    """Ends the application because the response is decided. The middleware sends it."""


class Middleware:
    """Innermost middleware of an application, which :meth:`Hapax.install` adds."""

    def __init__(self, app: App, threads: Threads, body_bytes_max: int) -> None:
        self.app = app
        self.threads = threads
        self.body_bytes_max = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self.threads, self.body_bytes_max)
        scope[SCOPE_KEY] = exchange
        try:
            await self.app(scope, exchange.receive, exchange.send)
        except Exception as error:
            if not await exchange.fail(error):
                raise
        finally:
            await exchange.abandon()


class Exchange:
    """One request, from the middleware's point of view."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, threads: Threads, body_bytes_max: int
    ) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        self._threads = threads
        self._body_bytes_max = body_bytes_max
        self._body: list[bytes] = []
        self._length = 0
        self._is_complete = False
        self.flow: Flow | None = None
        self._response: Response | None = None
        self._decided: Response | None = None
        self._is_over = False
        self._is_ended = False
        self._is_gone = False

    async def receive(self) -> Message:
        """Pass a message on, and keep the body for the fingerprint."""
        message = await self._receive()
        if message["type"] == "http.request" and not self._is_complete:
            self._length += len(message.get("body", b""))
            if self._length <= self._body_bytes_max:
                self._body.append(message.get("body", b""))
            else:
                self._body.clear()
            self._is_complete = not message.get("more_body", False)
        return message

    @property
    def is_body_complete(self) -> bool:
        """Whether the body was read to its end."""
        return self._is_complete

    def body(self, limit: int) -> bytes | None:
        """Return the body, or ``None`` if it is longer than ``limit``.

        Raises:
            EngineError: the route has not read the body.
        """
        if self._length > min(limit, self._body_bytes_max):
            return None
        if not self._is_complete:
            raise EngineError("the body was not read to its end before the key is claimed")
        return b"".join(self._body)

    async def begin(
        self,
        driver: Driver,
        operation: Operation,
        template: str,
        tenant: Any,
        kind: type[Flow] = Flow,
    ) -> Any:
        """Claim the key and return what the handler receives: its transaction, or its phases.

        Raises:
            Decided: there is a response already.
        """
        if self.flow is not None:
            raise RuntimeError("the key of this request is claimed already: use one transaction")
        # Extensions with which an application could send a body past `send`.
        self.scope["extensions"] = {}
        flow = kind(driver, operation, self._request(operation, template), tenant)
        claim = _spawn(self._claim(flow))
        try:
            response = await asyncio.shield(claim)
        except asyncio.CancelledError:
            self._is_gone = True
            if claim.done():
                # The middleware rolls back.
                self.flow = flow
            raise
        self.flow = flow
        if response is not None:
            self._is_ended = True
            self._decided = response
            raise Decided
        return flow.given

    async def _claim(self, flow: Flow) -> Response | None:
        response = await self._run(flow, flow.begin(), self._threads.claim)
        if self._is_gone:
            await self._run(flow, flow.abandon(), self._threads.end)
        return response

    async def send(self, message: Message) -> None:
        """Keep the response of a route that has begun, and pass everything else on."""
        flow = self.flow
        if flow is None or self._decided is not None or self._is_over:
            if flow is None:
                self._is_over = True
                await self._send(message)
            return
        if message["type"] == "http.response.start":
            headers = [
                (bytes(name).decode("latin-1").lower(), bytes(value).decode("latin-1"))
                for name, value in message.get("headers", [])
            ]
            self._response = Response(message["status"], headers)
            if (self._response.header("content-type") or "").startswith("text/event-stream"):
                await self._refuse(_event_stream())
        elif message["type"] == "http.response.body" and self._response is not None:
            self._response.body += message.get("body", b"")
            if len(self._response.body) > RESPONSE_BYTES_MAX:
                await self._refuse(too_large())
            if not message.get("more_body", False):
                await self._deliver(await self._end(flow, flow.finish(self._response)))

    async def fail(self, error: Exception) -> bool:
        """Handle an exception of the application. Return whether it is handled."""
        flow = self.flow
        if flow is None and isinstance(error, Problem) and not self._is_over:
            # Of a route that is not idempotent, such as one that receives webhooks.
            await self._deliver(error.response(request_id(first(self._headers(), "x-request-id"))))
            return True
        if flow is None or self._is_over:
            return False
        if self._decided is not None:
            await self._deliver(self._decided)
            return True
        is_unexpected = flow.is_unexpected(error)
        if is_unexpected and self._has_own_page():
            return False
        response = await self._end(flow, flow.fail(error))
        if is_unexpected:
            # The error is raised again, so the framework reports it. Servers close the connection
            # after that, and a client must not send its next request on it.
            response.set("connection", "close")
        await self._deliver(response)
        return not is_unexpected

    def _has_own_page(self) -> bool:
        """Whether the application has its own page for errors of the program."""
        app = self.scope.get("app")
        handlers = getattr(app, "exception_handlers", {})
        return bool(getattr(app, "debug", False)) or bool({500, Exception} & set(handlers))

    async def abandon(self) -> None:
        """Roll back if the request has not ended."""
        if self.flow is not None and not self._is_ended:
            await self._end(self.flow, self.flow.abandon())

    async def _refuse(self, problem: Problem) -> None:
        if self.flow is None:
            raise RuntimeError("the request has not begun")
        self._decided = await self._end(self.flow, self.flow.refuse(problem))
        raise Decided

    async def _deliver(self, response: Response) -> None:
        self._is_over = True
        headers = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in response.headers
            if name not in {"content-length", "transfer-encoding"}
        ]
        if response.status not in _NO_LENGTH:
            headers.append((b"content-length", str(len(response.body)).encode()))
        start = {"type": "http.response.start", "status": response.status, "headers": headers}
        await self._send(start)
        await self._send({"type": "http.response.body", "body": response.body})

    def _request(self, operation: Operation, template: str) -> Request:
        scope = self.scope
        headers = self._headers()
        body = self.body(operation.body_bytes_max)
        query = scope.get("query_string", b"")
        return Request(scope["method"], template, raw_path(scope), query, headers, body)

    def _headers(self) -> Headers:
        return [
            (bytes(name).decode("latin-1").lower(), bytes(value).decode("latin-1"))
            for name, value in self.scope["headers"]
        ]

    async def _run(self, flow: Flow, step: Coroutine[Any, Any, T], in_thread: InThread) -> T:
        if flow.driver.is_async:
            return await step
        return await run_in_threads(in_thread, step, asyncio.sleep)

    async def _end(self, flow: Flow, step: Coroutine[Any, Any, T]) -> T:
        """Run a step that ends the transaction. It goes on if the request is cancelled."""
        self._is_ended = True
        return await asyncio.shield(_spawn(self._run(flow, step, self._threads.end)))


def _spawn(step: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Run a step that goes on if the request is cancelled, for example by a middleware."""
    task = asyncio.ensure_future(step)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


def raw_path(scope: Scope) -> bytes:
    """Return the path as it was sent."""
    raw = scope.get("raw_path")
    if raw:
        return bytes(raw).split(b"?", 1)[0]
    from urllib.parse import quote

    return quote(scope["path"], safe="/:@!$&'()*+,;=~").encode()


def _event_stream() -> Problem:
    detail = (
        "this operation responds with an event stream, which cannot be stored and replayed; "
        "nothing was changed"
    )
    return Problem(codes.INTERNAL, detail)
