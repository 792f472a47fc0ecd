"""The transaction that a handler receives."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .driver import Unit
from .event import event
from .stored import Disposition


class BaseTx:
    """The transaction of one request. It is committed or rolled back after the handler.

    Attributes:
        tenant: the tenant of the key.
        key: the idempotency key; ``None`` if the request runs without one.
        disposition: set it to decide what is stored for this response, regardless of its status.
    """

    def __init__(self, unit: Unit, tenant: str, key: str | None) -> None:
        self._unit = unit
        self.tenant = tenant
        self.key = key
        self.disposition: Disposition | None = None
        self._events: list[dict[str, Any]] = []
        self._is_closed = False

    @property
    def connection(self) -> Any:
        """The driver's connection, in the transaction that holds the key.

        It is the connection of psycopg, asyncpg or SQLAlchemy that the engine hands out. Do not
        commit it: the package does so after the handler.
        """
        return self._unit.connection

    @property
    def session(self) -> Any:
        """The ORM session on :attr:`connection`, if the engine is one of SQLAlchemy.

        ``session.commit()`` and ``session.rollback()`` act on a savepoint only.
        """
        return self._unit.session

    def _close(self) -> list[dict[str, Any]]:
        """Accept no more events, and return those that are committed."""
        self._is_closed = True
        return self._events

    def _emit(self, kind: str, payload: object, **options: Any) -> None:
        if self._is_closed:
            raise RuntimeError("the phase has ended: emit its events in its transaction")
        self._events.append(event(kind, payload, **options))


class AsyncTx(BaseTx):
    """The transaction of one request, for coroutines."""

    async def emit(
        self,
        kind: str,
        payload: object,
        *,
        aggregate: tuple[str, object] | None = None,
        sequence: int | None = None,
        headers: Mapping[str, str] | None = None,
        tenant: str | None = None,
        available_at: datetime | None = None,
        ordered: bool = False,
        content_type: str | None = None,
    ) -> None:
        """Add an event to the transaction. It exists exactly if the transaction commits.

        The event is sent to the database together with the response.

        Args:
            kind: the type, such as ``order.created``.
            payload: a JSON value, a pydantic model, :class:`hapax.JsonText`, or bytes with a
                ``content_type``.
            aggregate: the type and the id of the object that the event is about.
            sequence: the number of the event within its aggregate.
            headers: headers of the event.
            tenant: the tenant of the event. Default: that of the key.
            available_at: the event is not delivered before this time.
            ordered: keep the order of the aggregate's events by a lock on the aggregate.
            content_type: the content type of a payload of bytes.
        """
        self._emit(
            kind,
            payload,
            aggregate=aggregate,
            sequence=sequence,
            headers=headers,
            tenant=tenant,
            available_at=available_at,
            ordered=ordered,
            content_type=content_type,
        )


class Tx(BaseTx):
    """The transaction of one request, for functions that are not coroutines."""

    def emit(
        self,
        kind: str,
        payload: object,
        *,
        aggregate: tuple[str, object] | None = None,
        sequence: int | None = None,
        headers: Mapping[str, str] | None = None,
        tenant: str | None = None,
        available_at: datetime | None = None,
        ordered: bool = False,
        content_type: str | None = None,
    ) -> None:
        """Add an event to the transaction; see :meth:`AsyncTx.emit`."""
        self._emit(
            kind,
            payload,
            aggregate=aggregate,
            sequence=sequence,
            headers=headers,
            tenant=tenant,
            available_at=available_at,
            ordered=ordered,
            content_type=content_type,
        )
