"""The fingerprint of a request: SHA-256 over a version byte and length-prefixed parts.

The modes and their version bytes are those of the services in Rust, so services in both languages
recognize each other's requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from hashlib import sha256

from .canonical import JsonInvalidError, canonical_json
from .multipart import multipart_hash
from .problem import Problem, codes

CONDITIONS = ("if-match", "if-none-match", "if-unmodified-since")
"""Headers that are part of the fingerprint if they are sent."""

_SPACE = " \t\n\r\x0c"


class FingerprintMode(Enum):
    """How two requests with the same key are compared by their bodies."""

    RAW = "raw"
    JSON = "json"
    JSON_SEMANTIC = "json-semantic"

    @property
    def version(self) -> int:
        """The version byte."""
        return {"json": 1, "raw": 2, "json-semantic": 3}[self.value]


def digest(version: int, parts: Iterable[bytes]) -> bytes:
    """Hash parts, each with its length, so that different lists of parts have different hashes."""
    hashed = sha256(bytes([version]))
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big"))
        hashed.update(part)
    return hashed.digest()


def fingerprint(
    mode: FingerprintMode,
    operation: str,
    path: bytes,
    query: bytes,
    headers: Sequence[tuple[str, str]],
    body: bytes,
) -> bytes:
    """Compute the fingerprint of a request.

    Args:
        mode: how bodies are compared.
        operation: the operation of the claim.
        path: the path as it was sent.
        query: the query as it was sent, without ``?``.
        headers: pairs of name in lower case and value, as Latin-1.
        body: the body as it was sent.

    Raises:
        Problem: the body is not the JSON or multipart that its content type says.
    """
    content_type = next((value for name, value in headers if name == "content-type"), "")
    parts = [
        operation.encode(),
        path,
        query,
        media_type(content_type).encode("latin-1"),
        body_hash(mode, content_type, body),
    ]
    for condition in CONDITIONS:
        values = [value.strip(_SPACE) for name, value in headers if name == condition]
        if values:
            parts += [condition.encode(), ", ".join(values).encode("latin-1")]
    return digest(mode.version, parts)


def body_hash(mode: FingerprintMode, content_type: str, body: bytes) -> bytes:
    """Hash a body in the form that the mode and the content type ask for."""
    if mode is FingerprintMode.RAW:
        return sha256(body).digest()
    kind = media_type(content_type)
    if kind == "application/json" or (kind.endswith("+json") and kind != "+json"):
        if not body:
            return sha256(b"").digest()
        try:
            text = canonical_json(body, by_value=mode is FingerprintMode.JSON_SEMANTIC)
        except JsonInvalidError as error:
            raise Problem(codes.JSON_INVALID, str(error)) from None
        return sha256(text.encode()).digest()
    if kind == "multipart/form-data":
        return multipart_hash(content_type, body)
    return sha256(body).digest()


def media_type(content_type: str) -> str:
    """Return the content type in lower case, without parameters."""
    kind = content_type.split(";", 1)[0].strip(_SPACE)
    # Only ASCII letters: `str.lower` also changes other characters of Latin-1.
    return "".join(c.lower() if c.isascii() else c for c in kind)
