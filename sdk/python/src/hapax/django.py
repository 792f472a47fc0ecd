"""Integration with Django, on its own database or on another engine.

.. code-block:: python

    hapax = Hapax(tenant=lambda request: str(request.user.pk))

    @hapax.idempotent
    def create_order(request: HttpRequest, tx: Tx) -> HttpResponse: ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, overload

from django.conf import settings
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.exception import response_for_exception
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import get_resolver, get_urlconf

from .core import asgi, template, wsgi
from .core.app import BaseHapax
from .core.message import Request, Response
from .core.operation import Operation
from .core.problem import Problem
from .core.stored import Disposition
from .core.tx import Tx

__all__ = ["Disposition", "Hapax", "Problem", "Tx", "problem_response"]

View = Callable[..., Any]
_RESPONSES = (Http404, PermissionDenied, SuspiciousOperation, BadRequest)
"""Exceptions that Django turns into a status other than 500."""


class Hapax(BaseHapax[HttpRequest]):
    """The idempotent operations of a Django project.

    Args:
        engine: another engine than Django's own; see :data:`hapax.drivers.ENGINES`.
        using: the alias of Django's database, if ``engine`` is absent.
        settings: as for :class:`hapax.core.app.BaseHapax`.
    """

    def __init__(self, engine: Any = None, *, using: str = "default", **settings: Any) -> None:
        self._using = using
        if engine is None:
            from .drivers.django_orm import DjangoDriver

            engine = DjangoDriver(using)
        super().__init__(engine, **settings)

    @overload
    def idempotent(self, view: View, /) -> View: ...

    @overload
    def idempotent(self, /, **settings: Any) -> Callable[[View], View]: ...

    def idempotent(self, view: View | None = None, /, **settings: Any) -> Any:
        """Make a view idempotent. It receives the transaction as the argument ``tx``.

        A class-based view is decorated with ``method_decorator(hapax.idempotent,
        name="dispatch")``; its methods then have the argument ``tx``.

        Args:
            view: the view.
            settings: settings of this operation; see :class:`hapax.core.operation.Operation`.
        """
        if view is None:
            return functools.partial(self._wrap, self._with(settings))
        return self._wrap(self.operation, view)

    def _wrap(self, operation: Operation, view: View) -> View:
        if inspect.iscoroutinefunction(view):
            raise TypeError(
                f"{view.__qualname__} is a coroutine, but Django's transactions belong to a "
                "thread: make it a function; Django runs it in a thread under ASGI too"
            )

        @functools.wraps(view)
        def idempotent(request: HttpRequest, *args: Any, **values: Any) -> HttpResponse:
            response = wsgi.run(
                self._driver,
                operation,
                _request(request, operation),
                lambda: self._tenant_for(request),
                lambda tx: _response(view, request, args, {**values, "tx": tx}),
                functools.partial(_report, request),
            )
            return _django_response(response)

        # The transaction of ATOMIC_REQUESTS would end after the response is built.
        return transaction.non_atomic_requests(self._using)(idempotent)

    def _tenant_for(self, request: HttpRequest) -> str:
        user: Any = getattr(request, "user", None)
        known = str(user.pk) if user is not None and user.is_authenticated else None
        return self._tenant_of(request, known, [name.lower() for name in request.headers])


def problem_response(problem: Problem) -> HttpResponse:
    """Return the response for a problem of a view that is not idempotent."""
    return _django_response(problem.response())


def _request(request: HttpRequest, operation: Operation) -> Request:
    match = request.resolver_match
    route = template.of_angles(match.route) if match is not None else request.path
    headers = wsgi.headers_of(request.META)
    try:
        is_long = int(request.META.get("CONTENT_LENGTH") or 0) > operation.body_bytes_max
    except ValueError:
        is_long = True
    body = None if is_long else request.body
    if body is not None and len(body) > operation.body_bytes_max:
        body = None
    found = wsgi.request_of(request.META, route, headers, body)
    scope = getattr(request, "scope", None)
    return found if scope is None else replace(found, path=asgi.raw_path(scope))


def _response(
    view: View, request: HttpRequest, args: tuple[Any, ...], values: dict[str, Any]
) -> Response:
    """Run the view, and turn what it returns or raises into a complete response."""
    try:
        native: HttpResponseBase = view(request, *args, **values)
        render = getattr(native, "render", None)
        if callable(render) and not getattr(native, "is_rendered", True):
            native = render()
    except _RESPONSES as error:
        native = response_for_exception(request, error)
    headers = [(name.lower(), value) for name, value in native.items()]
    headers += [("set-cookie", morsel.OutputString()) for morsel in native.cookies.values()]
    kind = native.headers.get("Content-Type", "")
    if getattr(native, "is_async", False):
        raise TypeError("the view has returned an asynchronous stream, which cannot be stored")
    chunks: Any = native if getattr(native, "streaming", False) else [native.content]  # type: ignore[attr-defined]
    body = wsgi.collect(chunks, kind)
    return Response(native.status_code, headers, body)


def _report(request: HttpRequest, error: Exception) -> bool:
    if settings.DEBUG or hasattr(get_resolver(get_urlconf()).urlconf_module, "handler500"):
        return False
    # Logs the error and sends the signal.
    response_for_exception(request, error)
    return True


def _django_response(response: Response) -> HttpResponse:
    native = HttpResponse(response.body, status=response.status)
    del native.headers["Content-Type"]
    joined: dict[str, list[str]] = {}
    for name, value in response.headers:
        joined.setdefault(name, []).append(value)
    for name, values in joined.items():
        if name == "set-cookie":
            for value in values:
                native.cookies.load(value)
        elif name not in {"content-length", "transfer-encoding"}:
            # Django has one value for each name. A list is equal to its lines.
            native.headers[name] = ", ".join(values)
    return native
