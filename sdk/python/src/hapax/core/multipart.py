"""Hash of a ``multipart/form-data`` body, part by part.

The boundary is not hashed, because every client library generates a new one for every request. The
name, file name, content type and content of each part are hashed, in the order of arrival.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256

from .limits import MULTIPART_PARTS_MAX
from .problem import Problem, codes

_VERSION = 1
_BOUNDARY = re.compile(rb';\s*boundary\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))', re.IGNORECASE)
_TRANSPORT_PADDING = re.compile(rb"[ \t]*\r\n")


def multipart_hash(content_type: str, body: bytes) -> bytes:
    """Compute the hash of a multipart body.

    Raises:
        Problem: the body is not multipart, or a part has no name.
    """
    boundary = _BOUNDARY.search(content_type.encode("latin-1"))
    if boundary is None:
        raise _malformed("the content type has no boundary")
    mark = b"--" + (boundary[1] if boundary[1] is not None else boundary[2])
    hashed = sha256(bytes([_VERSION]))
    for number, (head, content) in enumerate(_parts(body, mark), 1):
        if number > MULTIPART_PARTS_MAX:
            raise _malformed(f"it has more than {MULTIPART_PARTS_MAX} parts")
        for part in _hashed(head, content):
            hashed.update(len(part).to_bytes(8, "big"))
            hashed.update(part)
    return hashed.digest()


def _hashed(head: bytes, content: bytes) -> Iterator[bytes]:
    headers = _headers(head)
    disposition = headers.get(b"content-disposition", b"")
    name = _attribute(disposition, b"name")
    if name is None:
        raise _malformed("a part has no name")
    for value in (name, _attribute(disposition, b"filename"), headers.get(b"content-type")):
        # A missing value differs from an empty one.
        if value is None:
            yield b"-"
        else:
            yield b"+"
            yield value
    yield sha256(content).digest()


def _parts(body: bytes, mark: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = body.find(mark)
    if at < 0:
        raise _malformed("it has no boundary")
    at += len(mark)
    while body[at : at + 2] != b"--":
        padding = _TRANSPORT_PADDING.match(body, at)
        head_end = body.find(b"\r\n\r\n", at)
        if padding is None or head_end < 0:
            raise _malformed("it ends before its last boundary")
        start = head_end + 4
        end = body.find(b"\r\n" + mark, start)
        if end < 0:
            raise _malformed("it ends before its last boundary")
        yield body[padding.end() : head_end], body[start:end]
        at = end + 2 + len(mark)


def _headers(head: bytes) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if not colon or not name.strip():
            raise _malformed("a part has a header that does not parse")
        headers[name.strip().lower()] = value.strip(b" \t")
    return headers


def _attribute(disposition: bytes, name: bytes) -> bytes | None:
    """Return a parameter of ``Content-Disposition``."""
    pattern = rb'(?:^|[\s;])%s\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^; ]*))' % name
    found = re.search(pattern, disposition, re.DOTALL)
    if found is None:
        return None
    if found[1] is not None:
        return found[1].replace(b'\\"', b'"')
    return found[2]


def _malformed(detail: str) -> Problem:
    return Problem(codes.MULTIPART_INVALID, detail)
