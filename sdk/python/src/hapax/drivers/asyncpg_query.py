"""Queries of several statements on asyncpg, which has no pipelines.

A query of several statements has no parameters, so the values are in its text, in hex: a literal of
the characters 0-9 and a-f ends where it should in every mode of the server.
"""

from __future__ import annotations

from typing import Any

LITERAL_MAX = 64 * 1024
"""Length up to which a value is sent in the text of a query."""


def joined_query(transaction: Any) -> Any:
    """Let a transaction execute more statements with its BEGIN or COMMIT; see :class:`_Joined`."""
    transaction._connection = _Joined(transaction._connection)
    return transaction._connection


def with_literals(sql: str, values: tuple[object, ...]) -> str:
    """Replace each ``{}`` by a value."""
    pieces = sql.split("{}")
    literals = [*map(_literal, values), ""]
    return "".join(piece + literal for piece, literal in zip(pieces, literals, strict=True))


def is_long(value: object) -> bool:
    """Whether a value is better sent as a parameter."""
    return isinstance(value, (str, bytes)) and len(value) > LITERAL_MAX


class _Joined:
    """The connection of a transaction, which executes more statements with its BEGIN or COMMIT."""

    before: str
    after: str
    status: str

    def __init__(self, raw: Any) -> None:
        vars(self).update(raw=raw, before="", after="", status="")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self):
            vars(self)[name] = value
        else:
            setattr(self.raw, name, value)

    async def execute(self, query: str) -> None:
        """Execute a query of the transaction with the statements before and after it, once."""
        joined = f"{self.before}{query}{self.after}"
        self.before = self.after = ""
        try:
            self.status = await self.raw.execute(joined)
        except BaseException:
            # Otherwise asyncpg takes the transaction for one that has begun.
            self.raw._top_xact = None
            raise


def _literal(value: object) -> str:
    """Write a value as an SQL expression."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return f"convert_from(decode('{value.encode().hex()}', 'hex'), 'UTF8')"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"decode('{bytes(value).hex()}', 'hex')"
    if isinstance(value, (int, float)):
        return f"'{float(value)!r}'" if isinstance(value, float) else f"{int(value)}"
    raise TypeError(f"a value of the SQL contract is not a {type(value).__name__}")
