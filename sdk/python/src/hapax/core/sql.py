"""Statements of the SQL contract.

``{}`` is a parameter. Each driver replaces it with its own placeholder. Every parameter is cast,
because a driver may send it without a type. JSON is passed and returned as text, so that no driver
has to know the type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache

from . import VERSION as PACKAGE_VERSION
from .message import Headers, Response

CONTRACT_VERSION = 2
"""The version of the SQL contract that the package needs."""

CLAIM = (
    "SELECT outcome, status, CAST(headers AS text), body, retry_after_ms FROM hapax.claim("
    "CAST({} AS text), CAST({} AS text), CAST({} AS text), CAST({} AS bytea), "
    "make_interval(secs => CAST({} AS double precision)), CAST({} AS text), interval '0')"
)
COMPLETE = (
    "SELECT 1 FROM hapax.complete(CAST({} AS text), CAST({} AS text), CAST({} AS text), "
    "CAST({} AS integer), CAST(CAST({} AS text) AS jsonb), CAST({} AS bytea), "
    "CAST(CAST({} AS text) AS jsonb))"
)
EMIT_MANY = "SELECT CAST(hapax.emit_many(CAST(CAST({} AS text) AS jsonb)) AS text)"
ACCEPT = (
    "SELECT hapax.accept(CAST({} AS text), CAST({} AS text), CAST({} AS bytea), CAST({} AS text))"
)
PROCESSED = (
    "SELECT 1 FROM hapax.processed(CAST({} AS text), CAST({} AS text), CAST({} AS text), "
    "CAST({} AS text))"
)
_OWNER = "CAST({} AS text), CAST({} AS text), CAST({} AS text), CAST({} AS bigint)"
_LEASE = "make_interval(secs => CAST({} AS double precision))"
_ENTERED = "timestamptz 'epoch' + CAST({} AS bigint) * interval '1 millisecond'"
"""The time of the entry. As text it would depend on the settings of the session."""
_NAME = f"hapax-python/{PACKAGE_VERSION} contract={CONTRACT_VERSION}"
ENTER = (
    "SELECT outcome, status, CAST(headers AS text), body, retry_after_ms, "
    "CASE current_setting('application_name') WHEN '' THEN "
    f"set_config('application_name', '{_NAME}', false) END, epoch, phase, "
    "CAST(data AS text), CAST(extract(epoch FROM entered_at) * 1000 AS bigint) FROM hapax.enter("
    "CAST({} AS text), CAST({} AS text), CAST({} AS text), CAST({} AS bytea), "
    f"lease => {_LEASE}, retention => {_LEASE}, on_expired => CAST({{}} AS text), "
    "owner => CAST({} AS text))"
)
"""Enters a key, and names the connection for ``hapax doctor`` as :data:`SET_NAME` does."""
PHASE = (
    f"SELECT 1 FROM hapax.phase({_OWNER}, CAST({{}} AS text), CAST(CAST({{}} AS text) AS jsonb), "
    f"CAST(CAST({{}} AS text) AS jsonb), {_ENTERED})"
)
FINISH = (
    f"SELECT 1 FROM hapax.finish({_OWNER}, CAST({{}} AS integer), "
    "CAST(CAST({} AS text) AS jsonb), CAST({} AS bytea), CAST(CAST({} AS text) AS jsonb), "
    f"{_ENTERED})"
)
RENEW = f"SELECT 1 FROM hapax.renew({_OWNER}, {_LEASE}, {_ENTERED})"
PROVIDER_KEY = (
    f"SELECT hapax.renew({_OWNER}, {_LEASE}, {_ENTERED}) IS NOT NULL, "
    f"hapax.provider_key({_OWNER}, CAST({{}} AS text), {_ENTERED})"
)
"""Returns the key for a step at a provider, and renews the lease before."""
NOTHING_HAPPENED = f"SELECT 1 FROM hapax.nothing_happened({_OWNER}, {_ENTERED})"
HAS_VERSION = "SELECT to_regprocedure('hapax.contract_version()') IS NOT NULL"
VERSION = "SELECT hapax.contract_version()"
IS_INTACT = "SELECT 1"
"""Fails in a transaction in which a statement has failed. Its COMMIT would roll back silently."""
SAVEPOINT = "SAVEPOINT hapax"
SET_NAME = f"SET application_name = '{_NAME}'"
"""Names the service in ``hapax doctor``. It is sent with a claim, if the connection has no name."""
RELEASE_SAVEPOINT = "RELEASE SAVEPOINT hapax"
"""Fails if the handler has ended the transaction."""
ROLLBACK_TO_SAVEPOINT = "ROLLBACK TO SAVEPOINT hapax"

Row = Sequence[object]


@cache
def in_schema(sql: str, schema: str) -> str:
    """Return a statement that calls the functions of another schema: ``hapax_api``."""
    return sql if schema == "hapax" else sql.replace("hapax.", f"{schema}.")


@cache
def with_placeholders(sql: str, placeholder: Callable[[int], str]) -> str:
    """Replace each ``{}`` by ``placeholder(number)``, numbered from 1."""
    pieces = sql.split("{}")
    out = [pieces[0]]
    for number, piece in enumerate(pieces[1:], 1):
        out += [placeholder(number), piece]
    return "".join(out)


def headers_json(headers: Headers) -> str:
    """Write headers as the functions take them."""
    return json.dumps(headers)


def stored_response(status: object, headers: object, body: object) -> Response:
    """Read a response as :data:`CLAIM` returns it."""
    if not isinstance(status, int) or not isinstance(headers, str):
        raise TypeError("hapax.claim returned a replay without status or headers")
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise TypeError("hapax.claim returned a replay without a body")
    return Response(status, [(name, value) for name, value in json.loads(headers)], bytes(body))
