"""Helpers for the tests of an idempotent operation, and a pytest plugin.

The plugin is loaded by pytest as soon as the package is installed. It adds the fixture
``check_idempotent``.

.. code-block:: python

    def test_orders(client, check_idempotent):
        first = check_idempotent(
            lambda key: client.post("/orders", json=tea, headers={"Idempotency-Key": key}),
            other=lambda key: client.post("/orders", json=milk, headers={"Idempotency-Key": key}),
            effects=lambda: Order.objects.count(),
        )
        assert first.status_code == 201
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from .core.stored import PER_EXCHANGE, REBUILT

R = TypeVar("R")
Check = Callable[..., Any]


def assert_idempotent(
    send: Callable[[str], R],
    *,
    other: Callable[[str], Any] | None = None,
    effects: Callable[[], int] | None = None,
    mismatch: int = 409,
) -> R:
    """Check that a request has one effect, and that its replays are byte for byte equal.

    The response may be one of httpx, Starlette's test client, requests, Flask's or Django's test
    client.

    Args:
        send: sends the request under the key.
        other: sends another request under the key, which must be a mismatch.
        effects: counts what the request has changed, such as the rows of a table.
        mismatch: the status of a mismatch in the profile of the operation.

    Returns:
        The first response.
    """
    key = str(uuid.uuid4())
    before = effects() if effects else 0
    first = send(key)
    after = effects() if effects else 0
    _check(_header(first, "idempotency-status") == "stored", f"not stored: {_shown(first)}")
    for _ in range(2):
        again = send(key)
        replayed = _header(again, "idempotency-status") == "replayed"
        _check(replayed, f"not replayed: {_shown(again)}")
        _check(_kept(again) == _kept(first), f"{_shown(again)} is not {_shown(first)}")
    if other is not None:
        refused = other(key)
        _check(refused.status_code == mismatch, f"not a mismatch: {_shown(refused)}")
    if effects is not None:
        _check(effects() == after, f"a replay had an effect: {effects()} after {after}")
        _check(after - before <= 1, f"the request had {after - before} effects")
    return first


@pytest.fixture(name="check_idempotent")
def check_idempotent_fixture() -> Check:
    """:func:`assert_idempotent`."""
    return assert_idempotent


def _check(holds: bool, message: str) -> None:
    if not holds:
        pytest.fail(message)


def _kept(response: Any) -> tuple[int, list[tuple[str, str]], bytes]:
    apart = PER_EXCHANGE | REBUILT
    headers = [(name.lower(), value) for name, value in response.headers.items()]
    return response.status_code, sorted(p for p in headers if p[0] not in apart), _body(response)


def _body(response: Any) -> bytes:
    body = response.content if hasattr(response, "content") else response.data
    return bytes(body)


def _header(response: Any, name: str) -> str | None:
    value = response.headers.get(name)
    return None if value is None else str(value)


def _shown(response: Any) -> str:
    return f"{response.status_code} {_body(response)[:200]!r}"
