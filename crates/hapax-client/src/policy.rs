//! Which attempts may be repeated.
//!
//! A status allows another attempt if it indicates a temporary condition and not an error of the
//! request, and if the response is not stored under the key: every attempt would receive it again.
//! Whether another attempt is safe is a separate question: a request with a key, or with an
//! idempotent method, may always be sent again; any other request only if no byte of it was sent.

use std::time::Duration;

use hapax::retry::{Backoff, Budget};
use http::{HeaderMap, HeaderName, Method, StatusCode};

/// The header with the idempotency key.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header in which a protected operation says whether it executed the request or replayed a
/// stored response.
pub(crate) const IDEMPOTENCY_STATUS: HeaderName = HeaderName::from_static("idempotency-status");
/// The header with the remaining time of the client in milliseconds.
pub(crate) const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");

/// The header with the number of the attempt, starting at 1.
pub(crate) const IDEMPOTENCY_ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");

/// How a client retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// How often and how fast one operation is attempted.
    pub backoff: Backoff,
    /// The limit of the load that all retries to one destination add.
    pub budget: Budget,
    /// Time limit of one attempt. The remaining time of the operation applies in addition.
    pub attempt_max: Option<Duration>,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A response was received.
    Response {
        /// The status.
        status: StatusCode,
        /// The wait that the response asks for.
        retry_after: Option<Duration>,
        /// Whether every attempt receives this response, because it is stored under the key.
        is_stored: bool,
    },
    /// No response was received, and the request was not sent.
    NotSent,
    /// No response was received, and the receiver may have the request.
    Lost,
    /// The same, because the time for the attempt has passed.
    TimedOut,
}

impl Seen {
    /// Whether another attempt can have another outcome.
    pub(crate) fn is_passing(self) -> bool {
        match self {
            Self::Response {
                status,
                retry_after,
                is_stored,
            } => !is_stored && passes(status, retry_after.is_some()),
            Self::NotSent | Self::Lost | Self::TimedOut => true,
        }
    }

    /// The wait that was asked for.
    pub(crate) fn asked(self) -> Option<Duration> {
        match self {
            Self::Response { retry_after, .. } => retry_after,
            Self::NotSent | Self::Lost | Self::TimedOut => None,
        }
    }
}

/// Whether a request may be sent again after any byte of it was sent.
pub(crate) fn is_repeatable(method: &Method, has_key: bool) -> bool {
    const IDEMPOTENT: [&str; 7] = ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "QUERY"];
    has_key || IDEMPOTENT.contains(&method.as_str())
}

/// Whether the client generates a key for a request without one.
pub(crate) fn wants_key(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PATCH)
}

/// Whether a protected operation says that this response is stored under the key, by this attempt or
/// by an earlier one.
pub(crate) fn is_stored(headers: &HeaderMap) -> bool {
    let status = headers.get(IDEMPOTENCY_STATUS);
    let status = status.and_then(|value| value.as_bytes().split(|byte| *byte == b';').next());
    status.is_some_and(|word| [&b"stored"[..], b"replayed"].contains(&word.trim_ascii()))
}

/// Whether the code of a problem says that the same request will fail again, regardless of the
/// status. The operators of the service have to fix a problem of the class `INTERNAL`.
pub(crate) fn is_final(code: &str) -> bool {
    code.split('.').next() == Some("INTERNAL")
}

fn passes(status: StatusCode, asked: bool) -> bool {
    match status.as_u16() {
        408 | 425 | 429 | 500 | 502 | 503 | 504 => true,
        409 => asked,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_the_status_are_ignored() {
        let says = |status: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(IDEMPOTENCY_STATUS, http::HeaderValue::from_static(status));
            is_stored(&headers)
        };
        assert!(says("stored") && says("replayed") && says("stored; upstream=opaque"));
        assert!(!says("bypassed") && !says("storedx") && !says("; stored"));
    }

    #[test]
    fn a_passing_status_is_tried_again_and_no_other() {
        let passing: Vec<u16> = (100..600)
            .filter(|status| passes(StatusCode::from_u16(*status).unwrap(), false))
            .collect();
        assert_eq!(passing, [408, 425, 429, 500, 502, 503, 504]);
        let asked: Vec<u16> = (100..600)
            .filter(|status| passes(StatusCode::from_u16(*status).unwrap(), true))
            .collect();
        assert_eq!(asked, [408, 409, 425, 429, 500, 502, 503, 504]);
    }

    #[test]
    fn a_post_or_patch_without_a_key_is_not_repeatable() {
        for (method, without, with) in [
            ("POST", false, true),
            ("PATCH", false, true),
            ("CONNECT", false, true),
            ("BREW", false, true),
            ("PUT", true, true),
            ("QUERY", true, true),
            ("GET", true, true),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(is_repeatable(&method, false), without, "{method}");
            assert_eq!(is_repeatable(&method, true), with, "{method}");
        }
    }
}
