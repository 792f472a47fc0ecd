//! Problem codes raised by Hapax.
//!
//! A code identifies one situation that a caller can act on. Its class, the part before the first
//! full stop, says how. Services add their own codes in the same classes with [`Code::new`].

use http::StatusCode;

/// The kind of a problem, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    name: &'static str,
    status: u16,
    title: &'static str,
}

impl Code {
    /// A code with the status and the title of its problems.
    pub const fn new(name: &'static str, status: u16, title: &'static str) -> Self {
        Self {
            name,
            status,
            title,
        }
    }

    /// The name, such as `CONFLICT.idempotency.in_progress`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The title for people, the same for every problem of this code.
    pub const fn title(&self) -> &'static str {
        self.title
    }

    /// The default status.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Whether sending the same request again can help.
    pub fn retryable(&self) -> bool {
        let class = self.name.split('.').next().unwrap_or_default();
        matches!(class, "TRANSIENT" | "DEPENDENCY" | "RATE_LIMIT") || self.name == IN_PROGRESS.name
    }
}

/// The `Idempotency-Key` header is not valid.
pub const KEY_INVALID: Code = Code::new(
    "VALIDATION.idempotency_key.invalid",
    400,
    "The Idempotency-Key header is invalid",
);
/// The operation requires an `Idempotency-Key`, and the request has none.
pub const KEY_MISSING: Code = Code::new(
    "VALIDATION.idempotency_key.missing",
    400,
    "This operation needs an Idempotency-Key header",
);
/// The `X-Request-Timeout` header is not valid.
pub const REQUEST_TIMEOUT_INVALID: Code = Code::new(
    "VALIDATION.request_timeout",
    400,
    "The X-Request-Timeout header is invalid",
);
/// The body is not JSON, or has a duplicate member.
pub const JSON_INVALID: Code = Code::new("VALIDATION.json", 400, "The body is not valid JSON");
/// The body is not multipart, although its content type says so.
pub const MULTIPART_INVALID: Code = Code::new(
    "VALIDATION.multipart",
    400,
    "The body is not valid multipart",
);
/// The body is incomplete.
pub const BODY_INCOMPLETE: Code = Code::new(
    "VALIDATION.body.incomplete",
    400,
    "The body ended before it was complete",
);
/// A member of the body, a query or a path parameter is missing, unknown or out of range.
pub const MEMBER_INVALID: Code = Code::new(
    "VALIDATION.member",
    400,
    "A member of the request is invalid",
);
/// The body exceeds the limit of the operation.
pub const BODY_TOO_LARGE: Code =
    Code::new("VALIDATION.body.too_large", 413, "The body is too large");
/// The operation does not accept the content type of the body.
pub const CONTENT_TYPE: Code = Code::new(
    "VALIDATION.content_type",
    415,
    "The content type is not supported",
);
/// The request is not valid.
pub const REQUEST_INVALID: Code = Code::new("VALIDATION.request", 400, "The request is invalid");
/// The route does not support this method.
pub const METHOD: Code = Code::new(
    "VALIDATION.method",
    405,
    "The method is not allowed for this route",
);
/// The object does not exist, or belongs to another tenant.
pub const NOT_FOUND: Code = Code::new("NOT_FOUND", 404, "There is nothing here");
/// The request has no credential.
pub const AUTH_MISSING: Code = Code::new("AUTH.missing", 401, "Authentication is needed");
/// The credential is unknown.
pub const AUTH_INVALID: Code = Code::new("AUTH.invalid", 401, "The credential is not valid");
/// The caller is not allowed to do this.
pub const AUTH_FORBIDDEN: Code = Code::new("AUTH.forbidden", 403, "This is not allowed");
/// The signature of a received webhook is not valid.
pub const AUTH_SIGNATURE: Code = Code::new("AUTH.signature", 401, "The signature is not valid");
/// The key was used for a different request.
pub const PAYLOAD_MISMATCH: Code = Code::new(
    "CONFLICT.idempotency.payload_mismatch",
    409,
    "The key was used for another request",
);
/// The first request with this key is still running.
pub const IN_PROGRESS: Code = Code::new(
    "CONFLICT.idempotency.in_progress",
    409,
    "A request with this Idempotency-Key is still running",
);
/// The first request with this key was sent to another system, and it is not known whether it had
/// an effect. A retry is refused until an operator has decided.
pub const OUTCOME_UNKNOWN: Code = Code::new(
    "CONFLICT.idempotency.outcome_unknown",
    409,
    "The outcome of the first request with this Idempotency-Key is unknown",
);
/// The key was used, and its response is no longer kept.
pub const EXPIRED: Code = Code::new(
    "CONFLICT.idempotency.expired",
    410,
    "The Idempotency-Key has expired",
);
/// The message id was used before with another payload.
pub const INBOX_MISMATCH: Code = Code::new(
    "CONFLICT.inbox.payload_mismatch",
    409,
    "The webhook-id was used for another payload",
);
/// Events after the cursor of a polling endpoint are missing.
pub const POLLING_GONE: Code = Code::new(
    "CONFLICT.polling.gone",
    410,
    "Events after the cursor are missing",
);
/// The cursor is behind the committed one of its polling endpoint.
pub const POLLING_BEHIND: Code = Code::new(
    "CONFLICT.polling.behind",
    409,
    "The cursor is behind the committed one",
);
/// The cursor is neither behind nor ahead of the committed one of its polling endpoint.
pub const POLLING_INCOMPARABLE: Code = Code::new(
    "CONFLICT.polling.incomparable",
    409,
    "The cursor is neither behind nor ahead of the committed one",
);
/// A precondition of the request does not hold; set the status to 412 or 428.
pub const PRECONDITION: Code = Code::new(
    "CONFLICT.precondition",
    412,
    "A condition of the request does not hold",
);
/// The current state does not permit the request.
pub const CONFLICT: Code = Code::new("CONFLICT.state", 409, "The current state does not allow it");
/// Too many requests.
pub const RATE_LIMIT: Code = Code::new("RATE_LIMIT.exceeded", 429, "Too many requests");
/// The tenant has reached its quota of stored keys or bytes. Nothing was changed.
pub const QUOTA: Code = Code::new("RATE_LIMIT.quota", 429, "The quota is used up");
/// The time of the request ran out before its commit. Nothing was changed.
pub const TIMEOUT: Code = Code::new("DEPENDENCY.timeout", 504, "The request ran out of time");
/// A dependency of the service cannot be reached.
pub const UNAVAILABLE: Code = Code::new(
    "DEPENDENCY.unavailable",
    503,
    "The service cannot do this now",
);
/// The service failed. Nothing was changed.
pub const INTERNAL: Code = Code::new("TRANSIENT.internal", 500, "The service failed");
/// The database refused a statement of the service, and would refuse it again. Nothing was changed.
pub const STATEMENT: Code = Code::new(
    "INTERNAL.statement",
    500,
    "The database refused what the service wrote",
);
/// The service uses Hapax in a way that breaks its promise, for example by ending a transaction that
/// the layer ends. The same request would fail again, and may have been executed.
pub const MISUSE: Code = Code::new("INTERNAL", 500, "The service failed");
/// The handler's response is too large to be stored. Nothing was changed.
pub const RESPONSE_TOO_LARGE: Code = Code::new(
    "TRANSIENT.response_too_large",
    500,
    "The response is too large to be stored",
);

/// The code of an error response that has none.
pub(crate) fn for_status(status: StatusCode) -> Code {
    let code = match status.as_u16() {
        401 => AUTH_MISSING,
        403 => AUTH_FORBIDDEN,
        404 => NOT_FOUND,
        405 => METHOD,
        408 | 504 => TIMEOUT,
        409 => CONFLICT,
        412 | 428 => PRECONDITION,
        413 => BODY_TOO_LARGE,
        415 => CONTENT_TYPE,
        429 => RATE_LIMIT,
        502 | 503 => UNAVAILABLE,
        400..=499 => REQUEST_INVALID,
        _ => INTERNAL,
    };
    Code {
        status: status.as_u16(),
        ..code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_asked_to_retry_what_can_pass() {
        let retryable = [
            TIMEOUT,
            UNAVAILABLE,
            INTERNAL,
            RATE_LIMIT,
            QUOTA,
            IN_PROGRESS,
        ];
        let never = [
            PAYLOAD_MISMATCH,
            EXPIRED,
            OUTCOME_UNKNOWN,
            KEY_MISSING,
            AUTH_INVALID,
            PRECONDITION,
            STATEMENT,
            MISUSE,
        ];
        assert!(retryable.iter().all(Code::retryable));
        assert!(!never.iter().any(Code::retryable));
    }
}
