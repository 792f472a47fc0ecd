"""Retry adapter of requests.

.. code-block:: python

    session = requests.Session()
    session.mount("https://", RetryAdapter(Retries(journal=FileJournal("orders.journal"))))
    response = session.post("https://shop.example/orders", json={"amount": 500})
    response.hapax.attempts
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import NewConnectionError

from hapax.core.driver import Pause, run_blocking

from .intent import current
from .operation import RESPONSE_BYTES_MAX, Missing, Received, Retries, SendError, Sent

__all__ = ["RetryAdapter"]


class RetryAdapter(HTTPAdapter):
    """Sends each request with its retries.

    The time of a single attempt is bounded by the timeouts of requests, which apply to each wait
    for the network.

    Args:
        retries: the policy, the budgets and the journal.
        options: as for ``HTTPAdapter``, except ``max_retries``.
    """

    def __init__(self, retries: Retries | None = None, **options: Any) -> None:
        if "max_retries" in options:
            raise TypeError("max_retries would retry without the rules of Hapax: pass retries")
        self.retries = retries or Retries()
        super().__init__(**options)

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send a request until its response is final."""
        sent = _sent(request)
        last: list[requests.Response] = []

        async def exchange(headers: dict[str, str], most: float) -> Received | Missing:
            attempt = _attempt(request, sent, headers)
            try:
                response = super(RetryAdapter, self).send(
                    attempt, True, _bounded(timeout, most), verify, cert, proxies
                )
                _read(response)
            except requests.exceptions.RequestException as error:
                return _missing(error)
            last[:] = [response]
            return Received(response.status_code, response.headers.get, response.content)

        came, outcome = run_blocking(self.retries.send(sent, current(), exchange, _pause))
        if isinstance(came, Missing):
            error: Any = came.error
            error.hapax = outcome
            raise error
        result: Any = last[0]
        result.request, result.hapax = request, outcome
        response: requests.Response = result
        return response


async def _pause(seconds: float) -> None:
    await Pause(seconds)


def _sent(request: requests.PreparedRequest) -> Sent:
    body: Any = request.body
    if body is None:
        raw = b""
    elif isinstance(body, str):
        raw = body.encode()
    elif isinstance(body, (bytes, bytearray)):
        raw = bytes(body)
    else:
        read = getattr(body, "read", None)
        raw = read() if callable(read) else b"".join(body)
    key = request.headers.get("idempotency-key")
    key = key.decode("latin-1") if isinstance(key, bytes) else key
    return Sent(request.method or "GET", request.url or "", key, raw)


def _attempt(
    request: requests.PreparedRequest, sent: Sent, headers: dict[str, str]
) -> requests.PreparedRequest:
    attempt = request.copy()
    attempt.headers.update(headers)
    if "idempotency-key" not in headers:
        attempt.headers.pop("idempotency-key", None)
    if request.body is not None:
        # A stream was read: it is sent as bytes, with their length.
        attempt.body = sent.body
        attempt.headers.pop("transfer-encoding", None)
        attempt.headers["content-length"] = str(len(sent.body))
    return attempt


def _bounded(timeout: Any, most: float) -> tuple[float, float]:
    connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    return min(connect or most, most), min(read or most, most)


def _read(response: requests.Response) -> None:
    body = bytearray()
    for chunk in response.iter_content(65536):
        body += chunk
        if len(body) > RESPONSE_BYTES_MAX:
            response.close()
            raise SendError(f"the response is longer than {RESPONSE_BYTES_MAX} bytes")
    unread: Any = response
    unread._content, unread._content_consumed = bytes(body), True


def _missing(error: requests.exceptions.RequestException) -> Missing:
    if isinstance(error, requests.exceptions.ConnectTimeout) or _is_refused(error):
        return Missing("not_sent", error)
    kind = "timed_out" if isinstance(error, requests.exceptions.Timeout) else "lost"
    return Missing(kind, error)


def _is_refused(error: BaseException) -> bool:
    """Whether there was no connection at all."""
    if not isinstance(error, requests.exceptions.ConnectionError) or not error.args:
        return False
    reason = getattr(error.args[0], "reason", None)
    return isinstance(reason, NewConnectionError)
