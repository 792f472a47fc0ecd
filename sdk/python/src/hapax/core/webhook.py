"""Signatures of Standard Webhooks: keys, signing and verification.

The signed text is ``id.timestamp.body``. A message is accepted if any listed signature matches any
key and the attempt is recent. Comparisons take constant time.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from .limits import SIGNATURES_MAX

TOLERANCE = 300.0
"""Maximum difference between the time of an attempt and the current time, in seconds."""

_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_ED25519_P = 2**255 - 19
_SMALL_ORDER = frozenset(
    {
        0,
        1,
        _ED25519_P - 1,
        2707385501144840649318225287225658788936804267575313519463743609750303021022,
        55188659117513257062467267217118295137698188065244968500265048394206261417927,
    }
)
"""The y coordinates of the points of small order."""


class KeyTextError(ValueError):
    """A text is not a key. The message does not repeat the text.

    Attributes:
        kind: ``prefix``, ``base64``, ``length`` or ``not_a_key``.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class VerifyError(ValueError):
    """A message is not accepted.

    Attributes:
        kind: ``malformed``, ``stale`` or ``signature``.
        header: the malformed header.
    """

    def __init__(self, kind: str, header: str | None = None) -> None:
        super().__init__(f"{header} is malformed" if header else kind)
        self.kind = kind
        self.header = header


@dataclass(frozen=True)
class Secret:
    """A shared secret (``whsec_...``): HMAC-SHA256, scheme ``v1``."""

    scheme = "v1"
    length = 32
    raw: bytes = field(repr=False)

    def sign(self, content: bytes) -> bytes:
        """Return the signature."""
        return hmac.new(self.raw, content, sha256).digest()

    def matches(self, content: bytes, signature: bytes) -> bool:
        """Whether the signature is that of the content."""
        return hmac.compare_digest(self.sign(content), signature)


@dataclass(frozen=True)
class PublicKey:
    """The receiver's half of a key pair (``whpk_...``): ed25519, scheme ``v1a``."""

    scheme = "v1a"
    length = 64
    key: Any

    def matches(self, content: bytes, signature: bytes) -> bool:
        """Whether the signature is that of the content."""
        from cryptography.exceptions import InvalidSignature

        try:
            self.key.verify(signature, content)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class KeyPair:
    """The sender's key pair (``whsk_...``): ed25519, scheme ``v1a``."""

    scheme = "v1a"
    key: Any = field(repr=False)

    def sign(self, content: bytes) -> bytes:
        """Return the signature."""
        signature: bytes = self.key.sign(content)
        return signature

    @property
    def public(self) -> str:
        """The receiver's half, as ``whpk_...``."""
        return "whpk_" + base64.b64encode(self.key.public_key().public_bytes_raw()).decode()


Verifier = Secret | PublicKey
Signer = Secret | KeyPair


def parse_verifier(text: str) -> Verifier:
    """Parse a key of a receiver.

    Raises:
        KeyTextError: the text is not a key.
        ImportError: it is an ed25519 key, and the extra ``ed25519`` is not installed.
    """
    if not text.startswith("whpk_"):
        return _secret(text)
    raw = _decode(text, "whpk_")
    if len(raw) != 32:
        raise _length(raw, "32")
    y = int.from_bytes(raw, "little") & ((1 << 255) - 1)
    if y % _ED25519_P in _SMALL_ORDER:
        raise KeyTextError("not_a_key", "key is not a usable ed25519 key")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not _is_on_curve(y % _ED25519_P):
        raise KeyTextError("not_a_key", "key is not a usable ed25519 key")
    return PublicKey(Ed25519PublicKey.from_public_bytes(raw))


def parse_signer(text: str) -> Signer:
    """Parse a key of a sender; see :func:`parse_verifier`."""
    if not text.startswith("whsk_"):
        return _secret(text)
    raw = _decode(text, "whsk_")
    if len(raw) != 64:
        raise _length(raw, "64")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(raw[:32])
    if key.public_key().public_bytes_raw() != raw[32:]:
        raise KeyTextError("not_a_key", "key is not a usable ed25519 key")
    return KeyPair(key)


def sign(message_id: str, timestamp: int, body: bytes, keys: Iterable[Signer]) -> str:
    """Sign a message with every key and return the value of ``webhook-signature``."""
    content = _content(message_id, str(timestamp), body)
    return " ".join(f"{key.scheme},{base64.b64encode(key.sign(content)).decode()}" for key in keys)


def verify(
    message_id: str,
    timestamp: str,
    signature: str,
    body: bytes,
    keys: Sequence[Verifier],
    *,
    now: float,
    tolerance: float = TOLERANCE,
) -> None:
    """Verify that a message was signed with one of ``keys``, and that its time is close to ``now``.

    Args:
        message_id: the value of ``webhook-id``.
        timestamp: the value of ``webhook-timestamp``.
        signature: the value of ``webhook-signature``.
        body: the body, byte for byte.
        keys: keys of the sender.
        now: the current time, in seconds since 1970.
        tolerance: the accepted difference in seconds.

    Raises:
        VerifyError: the message is not accepted.
    """
    if not message_id or "." in message_id:
        raise VerifyError("malformed", "webhook-id")
    if not (timestamp.isascii() and timestamp.isdigit()) or int(timestamp[-20:]) >= 2**63:
        raise VerifyError("malformed", "webhook-timestamp")
    if len(timestamp.lstrip("0")) > 19:
        raise VerifyError("malformed", "webhook-timestamp")
    if abs(int(timestamp) - int(now)) > tolerance:
        raise VerifyError("stale")
    entries = signature.split(" ")
    if len(entries) > SIGNATURES_MAX:
        raise VerifyError("malformed", "webhook-signature")
    content = _content(message_id, timestamp, body)
    for key in keys:
        for given in _listed(entries, key.scheme, key.length):
            if key.matches(content, given):
                return
    raise VerifyError("signature")


def _secret(text: str) -> Secret:
    raw = _decode(text, "whsec_")
    if not 24 <= len(raw) <= 64:
        raise _length(raw, "24 to 64")
    return Secret(raw)


def _length(raw: bytes, allowed: str) -> KeyTextError:
    return KeyTextError("length", f"key has {len(raw)} bytes, expected {allowed}")


def _decode(text: str, prefix: str) -> bytes:
    if not text.startswith(prefix):
        raise KeyTextError("prefix", f"key does not begin with {prefix}")
    raw = _base64(text[len(prefix) :])
    if raw is None:
        raise KeyTextError("base64", "key is not base64 after its prefix")
    return raw


def _base64(text: str) -> bytes | None:
    """Decode standard base64. Padding may be absent, and unused bits must be zero."""
    if not text.isascii() or not _BASE64.fullmatch(text):
        return None
    bare = text.rstrip("=")
    missing = -len(bare) % 4
    if missing == 3 or len(text) - len(bare) not in {0, missing}:
        return None
    try:
        raw = base64.b64decode(bare + "=" * missing, validate=True)
    except binascii.Error:
        return None
    return raw if base64.b64encode(raw).decode().rstrip("=") == bare else None


def _listed(entries: Sequence[str], scheme: str, length: int) -> Iterable[bytes]:
    """Return the listed signatures of one scheme with the expected length."""
    for entry in entries:
        version, comma, text = entry.partition(",")
        if comma and version == scheme and len(text) <= length * 2:
            raw = _base64(text)
            if raw is not None and len(raw) == length:
                yield raw


def _content(message_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{message_id}.{timestamp}.".encode("utf-8", "surrogateescape") + body


def _is_on_curve(y: int) -> bool:
    """Whether an ed25519 point has this y coordinate."""
    p = _ED25519_P
    d = -121665 * pow(121666, p - 2, p) % p
    x2 = (y * y - 1) * pow(d * y * y + 1, p - 2, p) % p
    return x2 == 0 or pow(x2, (p - 1) // 2, p) == 1
