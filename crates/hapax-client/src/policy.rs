//! Which attempts may be repeated: what was seen in, a verdict out.
//!
//! A status is worth another attempt when it says that the moment is at fault, not the request.
//! Whether another attempt is safe is another question: a request that names its intent by a key,
//! or whose method is idempotent, may be sent again whatever became of it; any other one only
//! while no byte of it has left.

use std::time::Duration;

use hapax::retry::{Backoff, Budget};
use http::{HeaderName, Method, StatusCode};

/// The header that names an intent.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header by which a protected operation says how its answer came about.
pub(crate) const IDEMPOTENCY_STATUS: HeaderName = HeaderName::from_static("idempotency-status");
/// The header that says how many milliseconds the client has left.
pub(crate) const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");

/// How a client retries; the default is the contract's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// How often and how fast one operation is tried.
    pub backoff: Backoff,
    /// What all retries to one destination may add to its load.
    pub budget: Budget,
    /// How long one attempt may take; what is left of the operation's time bounds it anyway.
    pub attempt_max: Option<Duration>,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// An answer came.
    Answer {
        /// Its status.
        status: StatusCode,
        /// The wait that it asks for.
        retry_after: Option<Duration>,
    },
    /// None came, and the request never left.
    NotSent,
    /// None came, and the far side may have the request.
    Lost,
}

impl Seen {
    /// Whether another attempt can end otherwise.
    pub(crate) fn is_passing(self) -> bool {
        match self {
            Self::Answer {
                status,
                retry_after,
            } => passes(status, retry_after.is_some()),
            Self::NotSent | Self::Lost => true,
        }
    }

    /// The wait that was asked for.
    pub(crate) fn asked(self) -> Option<Duration> {
        match self {
            Self::Answer { retry_after, .. } => retry_after,
            Self::NotSent | Self::Lost => None,
        }
    }
}

/// Whether a request may be sent again once bytes of it were sent.
pub(crate) fn is_repeatable(method: &Method, has_key: bool) -> bool {
    const IDEMPOTENT: [&str; 7] = ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "QUERY"];
    has_key || IDEMPOTENT.contains(&method.as_str())
}

/// Whether a client makes a key for a request that comes without one.
pub(crate) fn wants_key(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PATCH)
}

/// Whether a problem's code says that the same request will fail again, whatever its status: the
/// class `INTERNAL` is for what the service's own people have to mend.
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
