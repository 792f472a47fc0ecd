"""Events, as ``hapax.complete`` and ``hapax.emit_many`` take them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

EVENT_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True)
class JsonText:
    """JSON text that is kept byte for byte, instead of a value that is converted to JSON."""

    text: str


def event(
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
) -> dict[str, Any]:
    """Build an event. :meth:`hapax.AsyncTx.emit` describes the arguments.

    Raises:
        TypeError: the payload or the aggregate cannot be converted.
        ValueError: the payload is too long, or ``available_at`` has no time zone.
    """
    members: dict[str, Any] = {"type": kind, **_payload(payload, content_type)}
    if aggregate is not None:
        members["aggregate_type"], members["aggregate_id"] = aggregate[0], str(aggregate[1])
    if sequence is not None:
        members["sequence"] = sequence
    if headers:
        members["headers"] = dict(headers)
    if tenant is not None:
        members["tenant"] = tenant
    if available_at is not None:
        if available_at.tzinfo is None:
            raise ValueError("available_at has no time zone: pass datetime.now(timezone.utc) + ...")
        members["available_at"] = available_at.isoformat()
    if ordered:
        members["ordered"] = True
    return members


def _payload(payload: object, content_type: str | None) -> dict[str, Any]:
    if isinstance(payload, (bytes, bytearray, memoryview)):
        if content_type is None:
            raise TypeError("a payload of bytes needs a content_type; pass JSON as a value")
        encoded = bytes(payload)
        members: dict[str, Any] = {
            "payload_base64": base64.b64encode(encoded).decode(),
            "content_type": content_type,
        }
    elif content_type is not None:
        raise TypeError("content_type is for a payload of bytes; any other payload is JSON")
    else:
        text = json_text(payload)
        encoded = text.encode()
        members = {"payload": text}
    if len(encoded) > EVENT_BYTES_MAX:
        raise ValueError(f"the payload is longer than {EVENT_BYTES_MAX} bytes")
    return members


def json_text(payload: object) -> str:
    """Convert a payload to JSON: a pydantic model, :class:`JsonText`, or any JSON value."""
    if isinstance(payload, JsonText):
        return payload.text
    to_json = getattr(payload, "model_dump_json", None)
    if callable(to_json):
        return str(to_json())
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
