"""Retry transports of httpx.

.. code-block:: python

    client = httpx.Client(transport=RetryTransport(Retries(journal=FileJournal("orders.journal"))))
    response = client.post("https://shop.example/orders", json={"amount": 500})
    response.extensions["hapax"].attempts
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from hapax.core.driver import Pause, run_blocking

from .intent import current
from .operation import RESPONSE_BYTES_MAX, Missing, Received, Retries, SendError, Sent

__all__ = ["AsyncRetryTransport", "RetryTransport"]

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class RetryTransport(httpx.BaseTransport):
    """Sends each request with its retries.

    Args:
        retries: the policy, the budgets and the journal.
        transport: sends one attempt. Default: ``httpx.HTTPTransport()``.
    """

    def __init__(
        self, retries: Retries | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.retries = retries or Retries()
        self._transport = transport or httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request until its response is final."""
        sent = _sent(request, request.read())
        last: list[httpx.Response] = []

        async def exchange(headers: dict[str, str], most: float) -> Received | Missing:
            until = time.monotonic() + most
            try:
                response = self._transport.handle_request(_attempt(request, sent, headers, most))
                last[:] = [_complete(response, _read(response, until))]
            except httpx.TransportError as error:
                return _missing(error)
            return _received(last[0])

        came, outcome = run_blocking(self.retries.send(sent, current(), exchange, _pause))
        return _result(came, outcome, last, request)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


class AsyncRetryTransport(httpx.AsyncBaseTransport):
    """Sends each request with its retries; see :class:`RetryTransport`."""

    def __init__(
        self, retries: Retries | None = None, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.retries = retries or Retries()
        self._transport = transport or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request until its response is final."""
        sent = _sent(request, await request.aread())
        last: list[httpx.Response] = []

        async def once(headers: dict[str, str], most: float) -> httpx.Response:
            attempt = _attempt(request, sent, headers, most)
            response = await self._transport.handle_async_request(attempt)
            return _complete(response, await _aread(response))

        async def exchange(headers: dict[str, str], most: float) -> Received | Missing:
            try:
                last[:] = [await asyncio.wait_for(once(headers, most), most)]
            except httpx.TransportError as error:
                return _missing(error)
            except (asyncio.TimeoutError, TimeoutError):
                late = f"no response within {most:.3f} s"
                return Missing("timed_out", httpx.ReadTimeout(late, request=request))
            return _received(last[0])

        came, outcome = await self.retries.send(sent, current(), exchange, asyncio.sleep)
        return _result(came, outcome, last, request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


async def _pause(seconds: float) -> None:
    await Pause(seconds)


def _sent(request: httpx.Request, body: bytes) -> Sent:
    key = request.headers.get("idempotency-key")
    return Sent(request.method, str(request.url), key, body)


def _attempt(
    request: httpx.Request, sent: Sent, headers: dict[str, str], most: float
) -> httpx.Request:
    """Copy a request for one attempt. None of its waits is longer than ``most``."""
    every = httpx.Headers(request.headers)
    every.update(headers)
    if "idempotency-key" not in headers:
        every.pop("idempotency-key", None)
    # A stream was read: it is sent as bytes, with their length.
    every.pop("transfer-encoding", None)
    asked = request.extensions.get("timeout", {})
    kinds = ("connect", "read", "write", "pool")
    timeout = {kind: min(most, value) if (value := asked.get(kind)) else most for kind in kinds}
    extensions = {**request.extensions, "timeout": timeout}
    return httpx.Request(
        request.method, request.url, headers=every, content=sent.body, extensions=extensions
    )


def _read(response: httpx.Response, until: float) -> bytes:
    body = bytearray()
    stream: Any = response.stream
    chunks: Iterator[bytes] = iter(stream)
    try:
        for chunk in chunks:
            _grow(body, chunk)
            if time.monotonic() > until:
                raise httpx.ReadTimeout("the response did not end in time")
    finally:
        response.close()
    return bytes(body)


async def _aread(response: httpx.Response) -> bytes:
    body = bytearray()
    stream: Any = response.stream
    chunks: AsyncIterator[bytes] = aiter(stream)
    try:
        async for chunk in chunks:
            _grow(body, chunk)
    finally:
        await response.aclose()
    return bytes(body)


def _grow(body: bytearray, chunk: bytes) -> None:
    body += chunk
    if len(body) > RESPONSE_BYTES_MAX:
        raise SendError(f"the response is longer than {RESPONSE_BYTES_MAX} bytes")


def _complete(response: httpx.Response, body: bytes) -> httpx.Response:
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        stream=httpx.ByteStream(body),
        extensions=response.extensions,
    )


def _received(response: httpx.Response) -> Received:
    # A copy, because reading decodes the body and consumes the stream.
    stream: Any = response.stream
    raw = b"".join(stream)
    body = httpx.Response(response.status_code, headers=response.headers, content=raw).content
    return Received(response.status_code, response.headers.get, body)


def _missing(error: httpx.TransportError) -> Missing:
    if isinstance(error, _NOT_SENT):
        return Missing("not_sent", error)
    kind = "timed_out" if isinstance(error, httpx.TimeoutException) else "lost"
    return Missing(kind, error)


def _result(
    came: Received | Missing, outcome: Any, last: list[httpx.Response], request: httpx.Request
) -> httpx.Response:
    if isinstance(came, Missing):
        error: Any = came.error
        error.hapax = outcome
        if isinstance(error, httpx.RequestError):
            error.request = request
        raise error
    response = last[0]
    response.extensions = {**response.extensions, "hapax": outcome}
    return response
