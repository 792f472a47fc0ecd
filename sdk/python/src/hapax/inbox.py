"""Webhooks: verify the signature of Standard Webhooks, and process each message once.

.. code-block:: python

    inbox = Inbox("ledger", {"bank": ["whsec_..."]})

    async def receive(source, headers, body):
        message = inbox.verify(source, headers, body)
        async with pool.connection() as connection:
            if await inbox.accept(connection, message) is Acceptance.FIRST:
                ...                                     # the effect, in this transaction
                await inbox.processed(connection, message, "applied")
        # After the commit, respond with 200.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any

from .core import codes, sql
from .core.driver import run_blocking
from .core.problem import Problem
from .core.webhook import TOLERANCE, KeyTextError, Verifier, VerifyError, parse_verifier, verify
from .drivers import unit_of

__all__ = [
    "Acceptance",
    "Inbox",
    "KeyTextError",
    "Message",
    "SyncInbox",
    "VerifyError",
    "verify",
]


class Acceptance(Enum):
    """The result of accepting a message."""

    FIRST = "first"
    """The message is new: act, in this transaction."""
    DUPLICATE = "duplicate"
    """This consumer has accepted the message before: acknowledge it and stop."""


@dataclass(frozen=True)
class Message:
    """A verified message.

    Attributes:
        source: the sender whose signature was verified.
        id: the id of the message, unique within its source.
        body: the body, byte for byte.
    """

    source: str
    id: str
    body: bytes


class _BaseInbox:
    def __init__(
        self,
        consumer: str,
        sources: Mapping[str, Iterable[str]],
        *,
        tolerance: float = TOLERANCE,
        schema: str = "hapax",
    ) -> None:
        self.consumer = consumer
        self._tolerance = tolerance
        self._schema = schema
        self._keys: dict[str, list[Verifier]] = {
            source: [parse_verifier(text) for text in keys] for source, keys in sources.items()
        }

    def verify(
        self, source: str, headers: Mapping[str, str], body: bytes, *, now: float | None = None
    ) -> Message:
        """Verify the signature of a request.

        Args:
            source: the sender, which the route knows; its keys are used.
            headers: the headers of the request; names in any case.
            body: the body as it arrived, before any parser.
            now: the current time in seconds since 1970. Default: the clock.

        Raises:
            Problem: 404 if the source is unknown, 401 if the signature is not valid. Return its
                response.
        """
        keys = self._keys.get(source)
        if keys is None:
            raise Problem(codes.NOT_FOUND, "this source is unknown")
        found = {name.lower(): value for name, value in headers.items()}
        message_id = found.get("webhook-id", "")
        try:
            verify(
                message_id,
                found.get("webhook-timestamp", ""),
                found.get("webhook-signature", ""),
                body,
                keys,
                now=time.time() if now is None else now,
                tolerance=self._tolerance,
            )
        except VerifyError as error:
            raise Problem(codes.AUTH_SIGNATURE, "the signature is not valid") from error
        return Message(source, message_id, body)

    async def _accept(self, connection: Any, message: Message) -> Acceptance:
        unit = unit_of(connection)
        hashed = sha256(message.body).digest()
        (taken,) = await unit.fetch(
            sql.in_schema(sql.ACCEPT, self._schema),
            self.consumer,
            message.id,
            hashed,
            message.source,
        )
        if taken == "mismatch":
            raise Problem(codes.INBOX_MISMATCH, "the id was used for another payload")
        return Acceptance(taken)

    async def _processed(self, connection: Any, message: Message, result: str | None) -> None:
        unit = unit_of(connection)
        await unit.fetch(
            sql.in_schema(sql.PROCESSED, self._schema),
            self.consumer,
            message.id,
            message.source,
            result,
        )


class Inbox(_BaseInbox):
    """The messages of one consumer, for coroutines.

    Args:
        consumer: the name of the consumer. Each consumer accepts a message once.
        sources: the keys of each sender: ``whsec_...`` secrets, or ``whpk_...`` public keys. During
            a rotation a sender has two.
        tolerance: the accepted difference between the time of an attempt and now, in seconds.
        schema: the schema whose functions are called: ``hapax``, or ``hapax_api`` for a role
            without privileges on the tables.
    """

    async def accept(self, connection: Any, message: Message) -> Acceptance:
        """Accept a message in the transaction of its effect.

        Args:
            connection: the connection or session on which your transaction is open, or
                ``tx.connection`` of an idempotent operation.
            message: the verified message.

        Raises:
            Problem: 409 if the id was used for another payload.
            EngineError: ``connection`` is a pool, or has no open transaction.
        """
        return await self._accept(connection, message)

    async def processed(self, connection: Any, message: Message, result: str | None = None) -> None:
        """Record in the row of an accepted message that its effect was written.

        Args:
            connection: as in :meth:`accept`.
            message: the accepted message.
            result: what the consumer did: a text of at most 1024 bytes.
        """
        await self._processed(connection, message, result)


class SyncInbox(_BaseInbox):
    """The messages of one consumer, for functions that are not coroutines; see :class:`Inbox`."""

    def accept(self, connection: Any, message: Message) -> Acceptance:
        """Accept a message in the transaction of its effect; see :meth:`Inbox.accept`."""
        return run_blocking(self._accept(connection, message))

    def processed(self, connection: Any, message: Message, result: str | None = None) -> None:
        """Record that the effect of a message was written; see :meth:`Inbox.processed`."""
        run_blocking(self._processed(connection, message, result))
