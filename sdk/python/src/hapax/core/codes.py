"""Problem codes that the package raises.

A code identifies one situation that a caller can act on. Its class, the part before the first full
stop, says how. A service adds its own codes in the same classes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """The kind of a problem, for programs.

    Attributes:
        name: the name, such as ``CONFLICT.stock.out``.
        status: the status of its problems.
        title: the situation in words, the same for every problem of this code.
    """

    name: str
    status: int
    title: str

    @property
    def retryable(self) -> bool:
        """Whether the same request can succeed later."""
        kind = self.name.split(".", 1)[0]
        return kind in {"TRANSIENT", "DEPENDENCY", "RATE_LIMIT"} or self.name == IN_PROGRESS.name


KEY_INVALID = Code(
    "VALIDATION.idempotency_key.invalid", 400, "The Idempotency-Key header is invalid"
)
KEY_MISSING = Code(
    "VALIDATION.idempotency_key.missing", 400, "This operation needs an Idempotency-Key header"
)
REQUEST_TIMEOUT_INVALID = Code(
    "VALIDATION.request_timeout", 400, "The X-Request-Timeout header is invalid"
)
JSON_INVALID = Code("VALIDATION.json", 400, "The body is not valid JSON")
MULTIPART_INVALID = Code("VALIDATION.multipart", 400, "The body is not valid multipart")
BODY_INCOMPLETE = Code("VALIDATION.body.incomplete", 400, "The body ended before it was complete")
MEMBER_INVALID = Code("VALIDATION.member", 400, "A member of the request is invalid")
REQUEST_INVALID = Code("VALIDATION.request", 400, "The request is invalid")
METHOD = Code("VALIDATION.method", 405, "The method is not allowed for this route")
BODY_TOO_LARGE = Code("VALIDATION.body.too_large", 413, "The body is too large")
CONTENT_TYPE = Code("VALIDATION.content_type", 415, "The content type is not supported")
NOT_FOUND = Code("NOT_FOUND", 404, "There is nothing here")
AUTH_MISSING = Code("AUTH.missing", 401, "Authentication is needed")
AUTH_INVALID = Code("AUTH.invalid", 401, "The credential is not valid")
AUTH_FORBIDDEN = Code("AUTH.forbidden", 403, "This is not allowed")
AUTH_SIGNATURE = Code("AUTH.signature", 401, "The signature is not valid")
PAYLOAD_MISMATCH = Code(
    "CONFLICT.idempotency.payload_mismatch", 409, "The key was used for another request"
)
IN_PROGRESS = Code(
    "CONFLICT.idempotency.in_progress",
    409,
    "A request with this Idempotency-Key is still running",
)
OUTCOME_UNKNOWN = Code(
    "CONFLICT.idempotency.outcome_unknown",
    409,
    "The outcome of the first request with this Idempotency-Key is unknown",
)
EXPIRED = Code("CONFLICT.idempotency.expired", 410, "The Idempotency-Key has expired")
INBOX_MISMATCH = Code(
    "CONFLICT.inbox.payload_mismatch", 409, "The webhook-id was used for another payload"
)
PRECONDITION = Code("CONFLICT.precondition", 412, "A condition of the request does not hold")
CONFLICT = Code("CONFLICT.state", 409, "The current state does not allow it")
RATE_LIMIT = Code("RATE_LIMIT.exceeded", 429, "Too many requests")
QUOTA = Code("RATE_LIMIT.quota", 429, "The quota is used up")
TIMEOUT = Code("DEPENDENCY.timeout", 504, "The request ran out of time")
UNAVAILABLE = Code("DEPENDENCY.unavailable", 503, "The service cannot do this now")
TRANSIENT = Code("TRANSIENT.internal", 500, "The service failed")
STATEMENT = Code("INTERNAL.statement", 500, "The database refused what the service wrote")
RESPONSE_TOO_LARGE = Code(
    "TRANSIENT.response_too_large", 500, "The response is too large to be stored"
)
INTERNAL = Code("INTERNAL", 500, "The service failed")

_FOR_STATUS = {
    401: AUTH_MISSING,
    403: AUTH_FORBIDDEN,
    404: NOT_FOUND,
    405: METHOD,
    408: TIMEOUT,
    409: CONFLICT,
    412: PRECONDITION,
    413: BODY_TOO_LARGE,
    415: CONTENT_TYPE,
    428: PRECONDITION,
    429: RATE_LIMIT,
    502: UNAVAILABLE,
    503: UNAVAILABLE,
    504: TIMEOUT,
}


def for_status(status: int) -> Code:
    """Return the code of an error response that has none."""
    usual = REQUEST_INVALID if 400 <= status < 500 else TRANSIENT
    return _FOR_STATUS.get(status, usual)
