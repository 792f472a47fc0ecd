"""Idempotency keys: the grammar of the header, and how a key is written back.

A header that does not parse is refused and never guessed: two interpretations of one key would be
two effects.
"""

from __future__ import annotations

import re
from hashlib import sha256

from .limits import KEY_BYTES_MAX

DERIVED_PREFIX = "derived:"
"""Prefix of the keys that a service derives. Clients cannot send such keys."""

_SPACE = " \t\n\r\x0c"
_BARE = re.compile(r"[!#-~]*")
_PRINTABLE = re.compile(r"[ -~]*")
_PARAMETER_NAME = re.compile(r"[a-z*][a-z0-9_\-.*]*")
_BYTE_SEQUENCE = re.compile(r":[A-Za-z0-9+/=]*:")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+\-.^_`|~:/?]+")
_UUID_V7 = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}"
)


class KeyInvalidError(ValueError):
    """The value of the header is not a key. The message says why."""


def parse_header(value: bytes | str) -> str:
    """Parse the value of ``Idempotency-Key``.

    The value is a structured-field string (RFC 8941), whose parameters are ignored, or the same
    text without quotes.

    Raises:
        KeyInvalidError: the value is malformed, empty or too long.
    """
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    text = text.strip(_SPACE)
    if text.startswith('"'):
        key, end = _quoted(text, 0)
        _parameters(text, end)
    elif _BARE.fullmatch(text):
        key = text
    else:
        raise KeyInvalidError(
            "a key without quotes may contain only visible ASCII, no space and no quote"
        )
    if not key:
        raise KeyInvalidError("the key is empty")
    if len(key) > KEY_BYTES_MAX:
        raise KeyInvalidError("the key is longer than 255 bytes")
    return key


def header_value(key: str) -> str:
    """Format a key as a header value: without quotes if possible, otherwise with quotes."""
    if " " not in key and '"' not in key:
        return key
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def is_uuid_v7(key: str) -> bool:
    """Whether the key is a UUID of version 7, in upper or lower case."""
    return _UUID_V7.fullmatch(key) is not None


def short_hash(key: str) -> str:
    """Return the first 8 bytes of the key's SHA-256 in hex, for logs."""
    return sha256(key.encode()).hexdigest()[:16]


def _quoted(text: str, start: int) -> tuple[str, int]:
    """Parse the structured-field string at ``start``. Return its value and the index after it."""
    out: list[str] = []
    at = start + 1
    while at < len(text):
        character = text[at]
        at += 1
        if character == '"':
            return "".join(out), at
        if character == "\\":
            escaped = text[at : at + 1]
            if escaped not in {'"', "\\"}:
                raise KeyInvalidError("only a quote or a backslash can follow a backslash")
            out.append(escaped)
            at += 1
        elif _PRINTABLE.fullmatch(character):
            out.append(character)
        else:
            raise KeyInvalidError("a quoted key may contain only visible ASCII and spaces")
    raise KeyInvalidError("the quoted key is not terminated")


def _parameters(text: str, at: int) -> None:
    """Check that the rest consists of structured-field parameters, which are ignored."""
    malformed = KeyInvalidError("the text after the quoted key is not a valid parameter")
    while at < len(text):
        if text[at] != ";":
            raise malformed
        at += 1
        while at < len(text) and text[at] in _SPACE:
            at += 1
        name = _PARAMETER_NAME.match(text, at)
        if not name:
            raise malformed
        at = name.end()
        if text[at : at + 1] == "=":
            at = _parameter_value(text, at + 1)


def _parameter_value(text: str, at: int) -> int:
    """Return the index after the value of a parameter."""
    if text[at : at + 1] == '"':
        try:
            return _quoted(text, at)[1]
        except KeyInvalidError:
            pass
    else:
        pattern = _BYTE_SEQUENCE if text[at : at + 1] == ":" else _TOKEN
        value = pattern.match(text, at)
        if value:
            return value.end()
    raise KeyInvalidError("the text after the quoted key is not a valid parameter")
