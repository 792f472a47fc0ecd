//! What comes back: an answer or none, always with what was tried.

use std::time::Duration;

use bytes::Bytes;
use hapax::{key::IdempotencyKey, sink::BoxError};
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use serde::Deserialize;

use crate::{attempt::Attempts, course::Stopped, policy::IDEMPOTENCY_STATUS};

/// Bytes of a problem's code that are kept.
const CODE_BYTES_MAX: usize = 128;
/// The problem that says that a key belongs to another request, so that this one never ran.
const PAYLOAD_MISMATCH: &str = "CONFLICT.idempotency.payload_mismatch";

/// The last answer to an operation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its whole body.
    pub body: Bytes,
    /// The `code` of a problem+json answer.
    pub code: Option<String>,
    /// The wait that it asks for before the same is asked again.
    pub retry_after: Option<Duration>,
    /// The key of the operation.
    pub key: Option<IdempotencyKey>,
    /// Whether an earlier run had begun it, by the journal.
    pub is_resumed: bool,
    /// Why it is the last.
    pub stopped: Stopped,
    /// What was tried.
    pub attempts: Attempts,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The key could not be written down, so nothing was sent.
    #[error("journal cannot be written")]
    Journal(#[source] BoxError),
    /// The journal has the operation unfinished under another key than the one given; nothing was
    /// sent.
    #[error("the operation is unfinished under another key, by the journal")]
    OtherKey,
    /// The journal has the operation unfinished for so long that the service may have forgotten its
    /// key, and would do it a second time; nothing was sent.
    #[error(
        "the operation is unfinished under key {}, {}: a service may have forgotten that key by now",
        key.quoted(), since(*age)
    )]
    Stale {
        /// The key.
        key: IdempotencyKey,
        /// How long ago it was written down; `None` where its moment lies in the future.
        age: Option<Duration>,
    },
    /// No answer came.
    #[error("no answer came")]
    NoAnswer {
        /// The key of the operation.
        key: Option<IdempotencyKey>,
        /// Why there was no further attempt.
        stopped: Stopped,
        /// What was tried.
        attempts: Attempts,
        /// What stood in the way of the last attempt.
        source: BoxError,
    },
    /// The answer is longer than is taken in. It stands, and is not asked for again.
    #[error("the answer is longer than {max} bytes")]
    TooLarge {
        /// Its status.
        status: StatusCode,
        /// The key of the operation.
        key: Option<IdempotencyKey>,
        /// What was tried.
        attempts: Attempts,
        /// How long it may be.
        max: usize,
    },
}

fn since(age: Option<Duration>) -> String {
    match age {
        Some(age) => format!("begun {} s ago", age.as_secs()),
        None => "begun at a moment that is still to come by this machine's clock".to_owned(),
    }
}

/// The `code` of a problem+json answer.
pub(super) fn code(headers: &HeaderMap, body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Problem {
        code: Option<String>,
    }
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/problem+json") {
        return None;
    }
    let problem: Problem = serde_json::from_slice(body).ok()?;
    problem.code.filter(|code| code.len() <= CODE_BYTES_MAX)
}

/// What an answer that stands says about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// What became of it, whoever sent it: it may be forgotten.
    Known,
    /// That this attempt came to nothing: it may be forgotten where there is no other.
    Nothing,
    /// Nothing.
    Unknown,
}

/// What an answer that stands says about its key.
///
/// A 401 or a 404 says nothing about an attempt whose answer was lost, of this run or another: only
/// a success, or an answer of the protected operation itself, does. Where no earlier attempt is
/// `in_doubt`, it says that this one came to nothing; a server's error does not even say that:
/// whoever stands before it may have given up on what happened.
pub(super) fn fate(
    status: StatusCode,
    headers: &HeaderMap,
    code: Option<&str>,
    in_doubt: bool,
) -> Fate {
    let by_operation = headers
        .get(IDEMPOTENCY_STATUS)
        .is_some_and(|value| value == "stored" || value == "replayed");
    if status.is_success() || by_operation || code == Some(PAYLOAD_MISMATCH) {
        Fate::Known
    } else if !in_doubt && !status.is_server_error() {
        Fate::Nothing
    } else {
        Fate::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_problem_is_read_and_nothing_else_is() {
        let check = |kind: &str, body: &str, expected: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, kind.parse().unwrap());
            assert_eq!(code(&headers, body.as_bytes()).as_deref(), expected);
        };
        let problem = r#"{"code":"AUTH.missing","status":401}"#;
        check(
            "application/problem+json; charset=utf-8",
            problem,
            Some("AUTH.missing"),
        );
        check("application/json", problem, None);
        check("application/problem+json", "{\"code\":7}", None);
        check("application/problem+json", "", None);
        let long = format!("{{\"code\":\"{}\"}}", "A".repeat(200));
        check("application/problem+json", &long, None);
    }

    #[test]
    fn a_key_in_doubt_is_forgotten_only_when_the_answer_says_what_became_of_it() {
        let check = |status: u16, said: Option<&'static str>, code, expected: bool| {
            let mut headers = HeaderMap::new();
            if let Some(said) = said {
                headers.insert(IDEMPOTENCY_STATUS, http::HeaderValue::from_static(said));
            }
            let status = StatusCode::from_u16(status).unwrap();
            let in_doubt = fate(status, &headers, code, true);
            let alone = fate(status, &headers, code, false);
            let (known, unknown) = match status.is_server_error() {
                _ if expected => (Fate::Known, Fate::Known),
                true => (Fate::Unknown, Fate::Unknown),
                false => (Fate::Nothing, Fate::Unknown),
            };
            assert_eq!((alone, in_doubt), (known, unknown), "{status}");
        };
        check(201, None, None, true);
        check(402, Some("stored"), None, true);
        check(409, Some("replayed"), None, true);
        check(409, None, Some(PAYLOAD_MISMATCH), true);
        check(401, None, Some("AUTH.invalid"), false);
        check(404, None, None, false);
        check(400, Some("bypassed"), None, false);
        check(500, Some("stored"), None, true);
        check(501, None, None, false);
        check(524, None, None, false);
    }
}
