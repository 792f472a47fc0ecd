"""Integration with Flask.

.. code-block:: python

    hapax = Hapax(pool, tenant=lambda request: g.user_id)

    @app.post("/orders")
    @hapax.idempotent
    def create_order(tx: Tx): ...
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, overload

from flask import Flask, Request, current_app, got_request_exception, make_response, request
from flask import Response as FlaskResponse
from werkzeug.exceptions import ClientDisconnected

from .core import template, wsgi
from .core.app import BaseHapax
from .core.message import Response
from .core.operation import Operation
from .core.problem import Problem
from .core.stored import Disposition
from .core.tx import Tx

__all__ = ["Disposition", "Hapax", "Problem", "Tx", "problem_response"]

View = Callable[..., Any]


class Hapax(BaseHapax[Request]):
    """The idempotent operations of a Flask application.

    :class:`hapax.core.app.BaseHapax` describes the arguments.
    """

    @overload
    def idempotent(self, view: View, /) -> View: ...

    @overload
    def idempotent(self, /, **settings: Any) -> Callable[[View], View]: ...

    def idempotent(self, view: View | None = None, /, **settings: Any) -> Any:
        """Make a view idempotent. It receives the transaction as the argument ``tx``.

        Write it below the route: ``@app.post(...)`` first, then ``@hapax.idempotent``.

        Args:
            view: the view.
            settings: settings of this operation; see :class:`hapax.core.operation.Operation`.
        """
        if view is None:
            return functools.partial(self._wrap, self._with(settings))
        return self._wrap(self.operation, view)

    def _wrap(self, operation: Operation, view: View) -> View:
        @functools.wraps(view)
        def idempotent(**values: Any) -> FlaskResponse:
            current: Request = request._get_current_object()  # type: ignore[attr-defined]
            names = [name.lower() for name, _ in current.headers]
            response = wsgi.run(
                self._driver,
                operation,
                _request(current, operation),
                lambda: self._tenant_of(current, None, names),
                lambda tx: _response(view, values, tx),
                _report,
            )
            return _flask_response(current_app, response)

        return idempotent


def problem_response(problem: Problem) -> FlaskResponse:
    """Return the response for a problem of a route that is not idempotent.

    Pass it to ``app.register_error_handler(Problem, problem_response)``.
    """
    return _flask_response(current_app, problem.response())


def _request(sent: Request, operation: Operation) -> Any:
    rule = sent.url_rule.rule if sent.url_rule is not None else sent.path
    prefix = sent.root_path.rstrip("/")
    is_long = (sent.content_length or 0) > operation.body_bytes_max
    try:
        body = None if is_long else sent.get_data(cache=True)
    except ClientDisconnected:
        # It ends before its announced length, which `request_of` notices.
        body = b""
    if body is not None and len(body) > operation.body_bytes_max:
        body = None
    headers = [(name.lower(), value) for name, value in sent.headers.items()]
    return wsgi.request_of(sent.environ, prefix + template.of_angles(rule), headers, body)


def _response(view: View, values: dict[str, Any], tx: Tx) -> Response:
    """Run the view, and turn what it returns or raises into a complete response."""
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    try:
        native = make_response(app.ensure_sync(view)(tx=tx, **values))
    except Problem:
        raise
    except Exception as error:
        # Raises again what the application has no handler for.
        native = make_response(app.handle_user_exception(error))
    headers = [(name.lower(), value) for name, value in native.headers.items()]
    native.direct_passthrough = False
    body = wsgi.collect(native.response, native.content_type or "")
    return Response(native.status_code, headers, body)


def _report(error: Exception) -> bool:
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    is_shown = app.debug or app.testing or app.config["PROPAGATE_EXCEPTIONS"]
    if is_shown or 500 in app.error_handler_spec[None]:
        return False
    got_request_exception.send(app, _async_wrapper=app.ensure_sync, exception=error)
    app.log_exception(sys.exc_info())
    return True


def _flask_response(app: Flask, response: Response) -> FlaskResponse:
    native = app.response_class(response.body, response.status)
    native.headers.clear()
    for name, value in response.headers:
        if name not in {"content-length", "transfer-encoding"}:
            native.headers.add(name, value)
    return native
