"""Canonical JSON, so that equal requests have equal hashes.

Members are sorted by the UTF-16 code units of their names, strings are written as RFC 8785
requires, and white space is removed. Number tokens are kept as sent, or written by their decimal
value, but never as doubles. A duplicate member is refused, because parsers differ on which one
counts. The parser of the standard library is not used: it accepts texts that are not JSON, such as
``NaN``, and loses number tokens.
"""

from __future__ import annotations

import re

from .decimal_value import decimal_value
from .limits import JSON_DEPTH_MAX, JSON_MEMBERS_MAX

_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_NUMBER = re.compile(r"-?(?:0|[0-9]+)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SHORT = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_TO_ESCAPE = re.compile(r'["\\\x00-\x1f]')


class JsonInvalidError(ValueError):
    """The text has no canonical form. The message says why."""


def canonical_json(body: bytes, *, by_value: bool = False) -> str:
    """Return ``body`` in canonical form.

    Args:
        body: the JSON text in UTF-8.
        by_value: write numbers by their decimal value, so that ``1`` and ``1.0`` are equal.

    Raises:
        JsonInvalidError: the text is not JSON, has a duplicate member, or exceeds a limit.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _syntax(error.start) from None
    return _Reader(text, by_value).document()


def _syntax(at: int) -> JsonInvalidError:
    return JsonInvalidError(f"the body is not valid JSON at byte {at}")


class _Reader:
    """Reads a text and returns the canonical form of each value."""

    def __init__(self, text: str, by_value: bool) -> None:
        self.text = text
        self.at = 0
        self.by_value = by_value
        self.members = 0

    def document(self) -> str:
        value = self.value(0)
        self.space()
        if self.at != len(self.text):
            raise self.syntax()
        return value

    def value(self, depth: int) -> str:
        self.space()
        first = self.peek()
        if first == "{":
            return self.object(depth)
        if first == "[":
            return self.array(depth)
        if first == '"':
            return _written(self.string())
        for literal in ("true", "false", "null"):
            if self.text.startswith(literal, self.at):
                self.at += len(literal)
                return literal
        return self.number()

    def object(self, depth: int) -> str:
        self.open(depth)
        outer = self.members
        members: dict[str, str] = {}
        if not self.eat("}"):
            while True:
                self.member(members, depth)
                if not self.more("}"):
                    break
        self.members = outer
        names = sorted(members, key=_utf_16)
        return "{" + ",".join(f"{_written(name)}:{members[name]}" for name in names) + "}"

    def member(self, members: dict[str, str], depth: int) -> None:
        self.space()
        if self.peek() != '"':
            raise self.syntax()
        if self.members >= JSON_MEMBERS_MAX:
            raise JsonInvalidError(
                f"an object of the body has more than {JSON_MEMBERS_MAX} members"
            )
        self.members += 1
        name = self.string()
        if not self.eat(":"):
            raise self.syntax()
        value = self.value(depth + 1)
        if name in members:
            raise JsonInvalidError(
                f"an object of the body has the member {_written(name)} more than once"
            )
        members[name] = value

    def array(self, depth: int) -> str:
        self.open(depth)
        elements: list[str] = []
        if not self.eat("]"):
            while True:
                elements.append(self.value(depth + 1))
                if not self.more("]"):
                    break
        return "[" + ",".join(elements) + "]"

    def number(self) -> str:
        token = _NUMBER.match(self.text, self.at)
        if token is None:
            raise self.syntax()
        self.at = token.end()
        # `01` and `1.` do not match as a whole: what is left of them is not a value.
        return decimal_value(token[0]) if self.by_value else token[0]

    def string(self) -> str:
        self.at += 1
        out: list[str] = []
        while True:
            plain = _PLAIN.match(self.text, self.at)
            if plain:
                out.append(plain[0])
                self.at = plain.end()
            stop = self.peek()
            if stop == '"':
                self.at += 1
                return "".join(out)
            if stop != "\\":
                raise self.syntax()
            out.append(self.escape())

    def escape(self) -> str:
        escaped = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if escaped in _ESCAPES:
            return _ESCAPES[escaped]
        if escaped != "u":
            raise self.syntax()
        unit = self.unit()
        if not 0xD800 <= unit < 0xE000:
            return chr(unit)
        if unit >= 0xDC00 or not self.text.startswith("\\u", self.at):
            raise self.syntax()
        self.at += 2
        low = self.unit()
        if not 0xDC00 <= low < 0xE000:
            raise self.syntax()
        return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))

    def unit(self) -> int:
        digits = _HEX.match(self.text, self.at)
        if digits is None:
            raise self.syntax()
        self.at = digits.end()
        return int(digits[0], 16)

    def open(self, depth: int) -> None:
        if depth >= JSON_DEPTH_MAX:
            raise JsonInvalidError(f"the body is nested deeper than {JSON_DEPTH_MAX} levels")
        self.at += 1

    def more(self, close: str) -> bool:
        """Read what follows an element: true for a comma, false for the closing bracket."""
        self.space()
        found = self.peek()
        if found not in {",", close}:
            raise self.syntax()
        self.at += 1
        return found == ","

    def eat(self, character: str) -> bool:
        self.space()
        found = self.peek() == character
        self.at += found
        return found

    def space(self) -> None:
        skipped = _SPACE.match(self.text, self.at)
        if skipped:
            self.at = skipped.end()

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def syntax(self) -> JsonInvalidError:
        return _syntax(len(self.text[: self.at].encode()))


def _written(text: str) -> str:
    return '"' + _TO_ESCAPE.sub(_escaped, text) + '"'


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def _utf_16(name: str) -> bytes:
    return name.encode("utf-16-be")
