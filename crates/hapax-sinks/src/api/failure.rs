//! Responses of an API, and why a request did not succeed.
//!
//! The beginning of the body is kept, up to 16 KiB. The text of an error belongs to another system and
//! is not repeated, except in the stored response.

use std::{error::Error, sync::Arc, time::Duration};

use bytes::Bytes;
use hapax::{
    Timestamp, retry,
    sink::{Receipt, SinkError},
};
use http::StatusCode;

use crate::limits::BATCH_HEAD_BYTES;

/// How much a clock may differ from that of a service before it is why a signature is refused. AWS
/// accepts a signature for five minutes, S3 for fifteen.
const SKEW_MAX: Duration = Duration::from_mins(5);

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    /// The minimum wait that the response asks for.
    pub(crate) retry_after: Option<Duration>,
    /// How much the clock of this process differs from the `Date` of the response, if it has one.
    pub(crate) skew: Option<Duration>,
    /// The beginning of the body, without the secrets that were sent.
    pub(crate) head: Bytes,
}

impl Response {
    /// A response for the tests.
    #[cfg(test)]
    pub(crate) fn sample(status: u16, body: &str) -> Self {
        Self {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: None,
            skew: None,
            head: Bytes::copy_from_slice(body.as_bytes()),
        }
    }

    /// The response with another difference between the clocks.
    #[cfg(test)]
    pub(crate) fn with_skew(self, skew: Duration) -> Self {
        Self {
            skew: Some(skew),
            ..self
        }
    }

    /// What is stored for each event of the request.
    pub(crate) fn receipt(&self) -> Receipt {
        Receipt {
            status: Some(self.status.as_u16()),
            head: self.head.slice(..self.head.len().min(BATCH_HEAD_BYTES)),
        }
    }

    /// The failure of this type that the response reports with this code, if it has one.
    pub(crate) fn refused(&self, error_type: &'static str, code: Option<&str>) -> Failure {
        self.explained(error_type, code, "")
    }

    /// The failure of a response that refuses what was signed with the settings `signed_with`. If the
    /// clocks differ too much, that is the reason, and the type is `clock`.
    pub(crate) fn refused_signature(
        &self,
        error_type: &'static str,
        code: &str,
        signed_with: &str,
    ) -> Failure {
        let (error_type, advice) = match self.skew {
            Some(skew) if skew > SKEW_MAX => {
                let minutes = skew.as_secs() / 60;
                let advice = format!(
                    ": the clock of this machine differs by {minutes} minutes from that of the \
                     service, so set the clock"
                );
                ("clock", advice)
            }
            Some(_) => (error_type, format!(": check {signed_with}")),
            None => {
                let advice = format!(": check {signed_with}, and the clock of this machine");
                (error_type, advice)
            }
        };
        self.explained(error_type, Some(code), &advice)
    }

    fn explained(&self, error_type: &'static str, code: Option<&str>, advice: &str) -> Failure {
        let code = code.map_or_else(String::new, |code| format!(" and the code {code}"));
        Failure {
            error_type,
            retry_after: self.retry_after,
            receipt: self.receipt(),
            cause: Arc::new(Refused {
                status: self.status,
                explanation: format!("{code}{advice}"),
            }),
        }
    }
}

/// Why a request did not succeed. It is reported for each of its events.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The name for metrics.
    pub(crate) error_type: &'static str,
    /// The minimum wait that the response asked for.
    pub(crate) retry_after: Option<Duration>,
    /// The response, if there was one.
    pub(crate) receipt: Receipt,
    /// The cause.
    pub(crate) cause: Arc<dyn Error + Send + Sync>,
}

/// The status and the code of a response that was not a success, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("service responded with {status}{explanation}")]
struct Refused {
    status: StatusCode,
    explanation: String,
}

impl Failure {
    /// A failure without a response.
    pub(crate) fn new(error_type: &'static str, cause: impl Error + Send + Sync + 'static) -> Self {
        Self {
            error_type,
            retry_after: None,
            receipt: Receipt::default(),
            cause: Arc::new(cause),
        }
    }

    /// The outcome of an event that the service would have taken at another time.
    pub(crate) fn unavailable(&self) -> SinkError {
        SinkError::Unavailable {
            retry_after: self.retry_after,
            error_type: self.error_type,
            receipt: self.receipt.clone(),
            source: self.cause.clone().into(),
        }
    }

    /// The outcome of an event that the service does not take now, while it takes others.
    pub(crate) fn declined(&self) -> SinkError {
        SinkError::Declined {
            retry_after: self.retry_after,
            error_type: self.error_type,
            receipt: self.receipt.clone(),
            source: self.cause.clone().into(),
        }
    }

    /// The outcome of an event that the service never takes.
    #[cfg(any(feature = "sqs", feature = "sns", feature = "pubsub"))]
    pub(crate) fn rejected(&self) -> SinkError {
        SinkError::Rejected {
            error_type: self.error_type,
            receipt: self.receipt.clone(),
            source: self.cause.clone().into(),
        }
    }
}

/// How much `now` differs from the header `Date` of a response.
pub(super) fn skew(date: Option<&str>, now: Timestamp) -> Option<Duration> {
    let date = retry::http_date(date?)?;
    Some(now.since(date).max(date.since(now)))
}

/// The kind of failure by the status alone.
pub(crate) fn type_of_status(status: StatusCode) -> &'static str {
    match status.as_u16() {
        300..=399 => "redirect",
        401 | 403 => "login",
        413 => "too_large",
        429 | 503 => "throttled",
        400..=499 => "status_4xx",
        500..=599 => "status_5xx",
        _ => "status_other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_for_each_event_of_a_request_is_short() {
        let response = Response::sample(400, &"x".repeat(16 * 1024));
        assert_eq!(response.receipt().head.len(), BATCH_HEAD_BYTES);
    }

    #[test]
    fn a_failure_names_the_status_and_the_code() {
        let response = Response::sample(404, "");
        let cause = |code| response.refused("a", code).cause.to_string();
        assert_eq!(cause(None), "service responded with 404 Not Found");
        assert!(cause(Some("NotFound")).ends_with(" and the code NotFound"));
    }

    #[test]
    fn a_refused_signature_is_explained_by_the_clock_if_that_differs_too_much() {
        let of = |skew: Option<u64>| {
            let response = Response::sample(403, "");
            let response = match skew {
                Some(secs) => response.with_skew(Duration::from_secs(secs)),
                None => response,
            };
            let failure = response.refused_signature("login", "Signature", "secret_access_key");
            (failure.error_type, failure.cause.to_string())
        };
        let (error_type, text) = of(Some(721));
        assert_eq!(error_type, "clock");
        assert!(text.contains("differs by 12 minutes"), "{text}");
        let (error_type, text) = of(Some(300));
        assert_eq!(error_type, "login");
        assert!(text.ends_with(": check secret_access_key"), "{text}");
        let (error_type, text) = of(None);
        assert_eq!(error_type, "login");
        let both = "secret_access_key, and the clock of this machine";
        assert!(text.ends_with(both), "{text}");
    }

    #[test]
    fn the_clocks_differ_in_both_directions() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let of = |date| skew(date, now);
        let minute = Some(Duration::from_mins(1));
        assert_eq!(of(Some("Tue, 14 Nov 2023 22:14:20 GMT")), minute);
        assert_eq!(of(Some("Tue, 14 Nov 2023 22:12:20 GMT")), minute);
        assert_eq!(of(Some("yesterday")), None);
        assert_eq!(of(None), None);
    }
}
