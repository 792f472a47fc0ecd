"""Problems: error responses in ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import json
import math
import re
import secrets
from typing import Any

from . import codes
from .codes import Code
from .message import Response

TYPE_BASE = "https://hapax.dev/problems/"
CONTENT_TYPE = "application/problem+json"
STORED_DETAIL = (
    "this response is stored, and every request with this key receives it until the key expires; "
    "to have the request executed again, send it with another Idempotency-Key"
)
_REQUEST_ID = re.compile(r"[A-Za-z0-9\-_.:/+=]{1,128}")


class Problem(Exception):  # noqa: N818 - it is a response, and the name of the standard
    """An error response. Raise it in a handler, or return :meth:`response`.

    Args:
        code: the kind of the problem.
        detail: what is wrong with this request. Default: the title of the code.
        status: replaces the status of the code.
        member: the member of the request that is not valid.
        retry_after: seconds in ``Retry-After``, rounded up to whole seconds.
    """

    def __init__(
        self,
        code: Code,
        detail: str | None = None,
        *,
        status: int | None = None,
        member: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(code.name, detail)
        self.code = code
        self.detail = detail if detail is not None else code.title
        self.status = status if status is not None else code.status
        self.member = member
        self.retry_after = retry_after
        self.shown_as: str | None = None
        self.says_retry_after = False

    def document(self, request_id: str | None = None, *, stored: bool = False) -> dict[str, Any]:
        """Return the members of the document.

        Args:
            request_id: the id of the request in the log.
            stored: whether the response is stored under the key. Such a response asks for no
                retry, because every request with the key receives it.
        """
        retryable = self.code.retryable and not stored
        document: dict[str, Any] = {
            "type": TYPE_BASE + self.code.name.lower(),
            "title": self.code.title,
            "status": self.status,
            "detail": STORED_DETAIL if self.code.retryable and stored else self.detail,
            "code": self.shown_as or self.code.name,
            "retryable": retryable,
        }
        if self.says_retry_after and self.retry_after is not None and not stored:
            document["retry_after"] = whole_seconds(self.retry_after)
        if self.member is not None:
            document["member"] = self.member
        if request_id is not None:
            document["request_id"] = request_id
        return document

    def response(self, request_id: str | None = None, *, stored: bool = False) -> Response:
        """Return the response; see :meth:`document` for the arguments."""
        document = self.document(request_id, stored=stored)
        body = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
        response = Response(self.status, [("content-type", CONTENT_TYPE)], body)
        if self.retry_after is not None and not stored:
            response.headers.append(("retry-after", str(whole_seconds(self.retry_after))))
        return response


def whole_seconds(seconds: float) -> int:
    """Round up to whole seconds, at least one."""
    return max(1, math.ceil(seconds))


def request_id(sent: str | None) -> str:
    """Return the caller's ``X-Request-Id`` if it is valid, and otherwise a new one."""
    if sent is not None and _REQUEST_ID.fullmatch(sent):
        return sent
    return secrets.token_hex(16)


__all__ = ["Problem", "codes", "request_id", "whole_seconds"]
