"""Requests in phases without HTTP: a job that calls another system between its transactions.

.. code-block:: python

    async def charge(phases: AsyncPhases) -> Response:
        await phases.transaction("reserved", reserve)
        charge = await phases.call("charge", lambda key: provider.charge(order, key))
        await phases.transaction("charged", lambda tx: record(tx, charge))
        return Response(201, body=charge["id"].encode())

    result = await run_async(pool, charge, tenant="alice", operation="charge invoice",
                             key=invoice.id, payload=body)

:func:`run` does the same with a synchronous engine. With FastAPI, use the dependency
``hapax.phases``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from .core import codes
from .core.driver import done, run_blocking
from .core.errors import EngineError
from .core.limits import KEY_BYTES_MAX
from .core.message import Request, Response
from .core.operation import Operation, Parsed
from .core.owner import FencedError
from .core.phased_flow import PhasedFlow
from .core.phases import AsyncPhases, CallFailure, Phases
from .core.problem import Problem
from .drivers import driver_of

__all__ = [
    "AsyncPhases",
    "CallFailure",
    "FencedError",
    "Phases",
    "Response",
    "Result",
    "run",
    "run_async",
]


@dataclass(frozen=True)
class Result:
    """How a request has ended.

    Attributes:
        outcome: ``stored`` or ``replayed``; ``unstored`` if the handler has returned a response
            that is not stored, such as 503.
        response: the response.
    """

    outcome: str
    response: Response


async def run_async(
    engine: Any,
    handler: Callable[[AsyncPhases], Awaitable[Response]],
    *,
    tenant: str,
    operation: str,
    key: str,
    payload: bytes,
    **settings: Any,
) -> Result:
    """Run a request in phases, or return its stored response.

    Args:
        engine: an asynchronous engine or pool; see :data:`hapax.drivers.ENGINES`.
        handler: receives the phases and returns what is stored under the key. As in HTTP, 2xx is a
            success, and 402, 404, 409, 410 and 422 are stored refusals.
        tenant: the tenant of the key.
        operation: the operation of the key.
        key: the key.
        payload: what the request asks for. Another payload under the same key is refused.
        settings: ``lease``, ``retention``, ``wait``, ``on_expired`` and ``schema``; see
            :class:`hapax.core.operation.Operation`.

    Raises:
        Problem: the key was used for another payload, has another owner, or has expired.
        Exception: that of the handler, if its response is not stored. The same request then
            continues after the last committed phase.
    """
    flow = _flow(engine, Operation(name=operation, **settings), tenant, key, payload, is_async=True)
    return await _run(flow, handler)


def run(
    engine: Any,
    handler: Callable[[Phases], Response],
    *,
    tenant: str,
    operation: str,
    key: str,
    payload: bytes,
    **settings: Any,
) -> Result:
    """Run a request in phases on a synchronous engine; see :func:`run_async`."""
    settled = Operation(name=operation, **settings)
    return run_blocking(_run(_flow(engine, settled, tenant, key, payload, is_async=False), handler))


class _Flow(PhasedFlow):
    """A request without HTTP."""

    problem: Problem | None = None
    """The problem that was returned."""

    async def begin(self) -> Response | None:
        self._key = first_key = self.request.headers[0][1]
        self._tenant = self.tenant()
        for name in (self._tenant, self.operation.name or "", first_key):
            if not 1 <= len(name.encode()) <= KEY_BYTES_MAX:
                raise ValueError(
                    f"a tenant, an operation and a key have 1 to {KEY_BYTES_MAX} bytes"
                )
        hashed = sha256(self.request.body or b"").digest()
        self._parsed = Parsed(self.operation.name or "", first_key, hashed, None)
        return await self.enter()

    def _problem(self, problem: Problem) -> Response:
        self.problem = problem
        return super()._problem(problem)


def _flow(
    engine: Any, operation: Operation, tenant: str, key: str, payload: bytes, *, is_async: bool
) -> _Flow:
    driver = driver_of(engine)
    if driver.is_async is not is_async:
        raise EngineError(
            "run_async needs an asynchronous engine, and run a synchronous one: "
            "psycopg_pool.AsyncConnectionPool or ConnectionPool, for example"
        )
    request = Request("POST", "", b"", b"", [("idempotency-key", key)], payload)
    return _Flow(driver, operation, request, lambda: tenant)


async def _run(flow: _Flow, handler: Callable[[Any], Any]) -> Result:
    response = await flow.begin()
    if response is not None:
        return _result(flow, response, None)
    thrown: Exception | None = None
    try:
        made = await done(handler(flow.phases))
    except Exception as error:
        thrown = error
        response = await flow.fail(error)
    else:
        response = await flow.finish(made)
    finally:
        await flow.abandon()
    return _result(flow, response, thrown)


def _result(flow: _Flow, response: Response, thrown: Exception | None) -> Result:
    if flow.outcome == "unstored":
        is_taken = flow.problem is not None and flow.problem.code in _TAKEN
        if thrown is not None and (not is_taken or isinstance(thrown, FencedError)):
            raise thrown
        if flow.problem is not None:
            raise flow.problem
    own = ("idempotency-key", "idempotency-status", "idempotent-replayed")
    headers = [pair for pair in response.headers if pair[0] not in own]
    return Result(flow.outcome, Response(response.status, headers, response.body))


_TAKEN = frozenset({codes.IN_PROGRESS, codes.PAYLOAD_MISMATCH, codes.EXPIRED})
