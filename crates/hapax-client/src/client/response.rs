//! The result of an operation: a response or an error, always with the attempts.

use std::time::Duration;

use bytes::Bytes;
use hapax::{key::IdempotencyKey, sink::BoxError};
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use serde_json::{Map, Value};

use crate::{attempt::Attempts, policy::is_stored, stopped::Stopped};

/// Maximum length of the code of a problem in bytes.
const CODE_BYTES_MAX: usize = 128;
/// The problem codes for a key that belongs to another request, which means that this request was
/// not executed: Hapax's own, that of the Agentic Commerce Protocol, and that of the Ad Context
/// Protocol.
const PAYLOAD_MISMATCHES: [&str; 3] = [
    "CONFLICT.idempotency.payload_mismatch",
    "idempotency_conflict",
    "IDEMPOTENCY_CONFLICT",
];

/// The last response to an operation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The complete body.
    pub body: Bytes,
    /// The `code` of a problem+json response.
    pub code: Option<String>,
    /// The wait that the response asks for before the request is sent again.
    pub retry_after: Option<Duration>,
    /// The key of the operation.
    pub key: Option<IdempotencyKey>,
    /// Whether, according to the journal, an earlier run had started the operation.
    pub is_resumed: bool,
    /// Why there was no further attempt.
    pub stopped: Stopped,
    /// The attempts.
    pub attempts: Attempts,
}

/// An operation that ended without a complete response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The key could not be written to the journal. Nothing was sent.
    #[error("journal cannot be written")]
    Journal(#[source] BoxError),
    /// According to the journal, the operation is unfinished under another key than the given one.
    /// Nothing was sent.
    #[error("according to the journal, the operation is unfinished under another key")]
    OtherKey,
    /// According to the journal, the operation has been unfinished for so long that the service may
    /// have deleted the key and would execute the operation again. Nothing was sent.
    #[error(
        "the operation is unfinished under key {}, {}: the service may have deleted it by now",
        key.quoted(), since(*age)
    )]
    Stale {
        /// The key.
        key: IdempotencyKey,
        /// The age of the journal entry; `None` if its timestamp is in the future.
        age: Option<Duration>,
    },
    /// No response was received.
    #[error("no response was received")]
    NoResponse {
        /// The key of the operation.
        key: Option<IdempotencyKey>,
        /// Why there was no further attempt.
        stopped: Stopped,
        /// The attempts.
        attempts: Attempts,
        /// The error of the last attempt.
        source: BoxError,
    },
    /// The response is too long. It is final and is not requested again.
    #[error("the response is longer than {max} bytes")]
    TooLarge {
        /// The status.
        status: StatusCode,
        /// The key of the operation.
        key: Option<IdempotencyKey>,
        /// The attempts.
        attempts: Attempts,
        /// The maximum length in bytes.
        max: usize,
    },
}

fn since(age: Option<Duration>) -> String {
    match age {
        Some(age) => format!("started {} s ago", age.as_secs()),
        None => "started at a time that is in the future by this machine's clock".to_owned(),
    }
}

/// The `code` of a problem+json response.
pub(super) fn code(headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/problem+json") {
        return None;
    }
    let problem: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let code = problem.get("code")?.as_str()?;
    (code.len() <= CODE_BYTES_MAX).then(|| code.to_owned())
}

/// The code of a gateway that has sent an earlier attempt and does not know its outcome.
const OUTCOME_UNKNOWN: &str = "CONFLICT.idempotency.outcome_unknown";

/// The meaning of a final response for its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The outcome of the operation is known. The key can be removed from the journal.
    Known,
    /// This attempt had no effect. The key can be removed if there was no other attempt.
    Nothing,
    /// The response says nothing about the key.
    Unknown,
}

/// Decides what a final response means for its key.
///
/// A 401 or a 404 says nothing about an earlier attempt whose response was lost, in this run or in
/// another one. Only a success, or a response of the protected operation itself, settles that. If
/// no earlier attempt is `in_doubt`, a 401 or a 404 means that this attempt had no effect. A server
/// error does not mean that, because a proxy may have given up on a request that is still running.
/// Neither does the code of a gateway that does not know the outcome.
pub(super) fn fate(
    status: StatusCode,
    headers: &HeaderMap,
    code: Option<&str>,
    in_doubt: bool,
) -> Fate {
    let is_mismatch = code.is_some_and(|code| PAYLOAD_MISMATCHES.contains(&code));
    if status.is_success() || is_stored(headers) || is_mismatch {
        Fate::Known
    } else if !in_doubt && !status.is_server_error() && code != Some(OUTCOME_UNKNOWN) {
        Fate::Nothing
    } else {
        Fate::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::IDEMPOTENCY_STATUS;

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
        for code in PAYLOAD_MISMATCHES {
            check(409, None, Some(code), true);
        }
        check(401, None, Some("AUTH.invalid"), false);
        check(404, None, None, false);
        check(400, Some("bypassed"), None, false);
        check(500, Some("stored"), None, true);
        check(501, None, None, false);
        check(524, None, None, false);
    }
}
