"""Integration with Starlette.

.. code-block:: python

    app = Starlette(routes=[Route("/orders", create_order, methods=["POST"])])
    hapax = Hapax(pool, tenant=lambda request: request.user.identity)
    hapax.install(app)

    @hapax.idempotent
    async def create_order(request: Request, tx: AsyncTx) -> Response: ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, overload

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware as Entry
from starlette.requests import Request
from starlette.responses import Response

from .core import template
from .core.app import BaseHapax
from .core.asgi import SCOPE_KEY, Exchange, InThread, Middleware, Threads, raw_path
from .core.flow import Flow
from .core.operation import Operation
from .core.problem import Problem
from .core.stored import Disposition
from .core.tx import AsyncTx, Tx

__all__ = ["AsyncTx", "Disposition", "Hapax", "Problem", "Tx"]

Endpoint = Callable[..., Any]

_THREADS = 40
"""Threads of each kind, as many as Starlette has for endpoints."""


class Hapax(BaseHapax[Request]):
    """The idempotent operations of a Starlette application.

    :class:`hapax.core.app.BaseHapax` describes the arguments.
    """

    def install(self, app: Starlette) -> None:
        """Add the middleware that holds responses back until they are committed.

        It becomes the innermost middleware, regardless of when it is added, so that other
        middleware such as compression works on what is sent and not on what is stored.
        """
        added: list[Any] = app.user_middleware
        if any(entry.cls is Middleware for entry in added):
            return
        if app.middleware_stack is not None:
            raise RuntimeError("install Hapax before the application serves its first request")
        entry: Any = Entry(
            Middleware,
            threads=Threads(claim=_threads("claim"), end=_threads("end")),
            body_bytes_max=self.operation.body_bytes_max,
        )
        added.append(entry)

    @overload
    def idempotent(self, endpoint: Endpoint, /) -> Callable[[Request], Awaitable[Response]]: ...

    @overload
    def idempotent(
        self, /, **settings: Any
    ) -> Callable[[Endpoint], Callable[[Request], Awaitable[Response]]]: ...

    def idempotent(self, endpoint: Endpoint | None = None, /, **settings: Any) -> Any:
        """Make an endpoint idempotent. It receives the request and the transaction.

        Args:
            endpoint: a coroutine, or a function if the engine is synchronous.
            settings: settings of this operation; see :class:`hapax.core.operation.Operation`.
        """
        if endpoint is None:
            return functools.partial(self._wrap, self._with(settings))
        return self._wrap(self.operation, endpoint)

    def _wrap(
        self, operation: Operation, endpoint: Endpoint
    ) -> Callable[[Request], Awaitable[Response]]:
        @functools.wraps(endpoint)
        async def idempotent(request: Request) -> Response:
            tx = await self._begin(request, operation)
            if inspect.iscoroutinefunction(endpoint):
                response: Response = await endpoint(request, tx)
            else:
                response = await run_in_threadpool(endpoint, request, tx)
            return response

        return idempotent

    async def _begin(self, request: Request, operation: Operation, kind: type[Flow] = Flow) -> Any:
        exchange = request.scope.get(SCOPE_KEY)
        if not isinstance(exchange, Exchange):
            raise RuntimeError("call hapax.install(app) when the application is created")
        if not exchange.is_body_complete:
            await request.body()
        route = _template(request)
        tenant = functools.partial(self._tenant_for, request)
        return await exchange.begin(self._driver, operation, route, tenant, kind)

    def _tenant_for(self, request: Request) -> str:
        user = request.scope.get("user")
        identity = None
        if user is not None and getattr(user, "is_authenticated", False):
            identity = getattr(user, "identity", None) or user.display_name
        return self._tenant_of(request, identity, list(request.headers))


def _threads(kind: str) -> InThread:
    """Return a function that runs others in threads which only it uses."""
    limiters: RunVar[CapacityLimiter] = RunVar(f"hapax {kind}")

    async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
        limiter = limiters.get(None)
        if limiter is None:
            limiter = CapacityLimiter(_THREADS)
            limiters.set(limiter)
        return await to_thread.run_sync(function, *arguments, limiter=limiter)

    return in_thread


def _template(request: Request) -> str:
    scope = request.scope
    # FastAPI: the route of a nested router knows only its own part of the path.
    context = scope.get("fastapi", {}).get("effective_route_context")
    route = getattr(context, "path_format", None) or getattr(_route(scope), "path", None)
    path: str = scope["path"]
    prefix = scope.get("app_root_path", scope.get("root_path", ""))
    path = path[len(prefix) :] if prefix and path.startswith(prefix) else path
    if route is None:
        return raw_path(scope).decode("latin-1")
    return template.of_braces(route, path)


def _route(scope: Any) -> Any:
    """Return the route of a request, which old versions of Starlette do not put into the scope."""
    if "route" in scope:
        return scope["route"]
    endpoint = scope.get("endpoint")
    routes = getattr(scope.get("router"), "routes", [])
    return next((route for route in routes if getattr(route, "endpoint", None) is endpoint), None)
