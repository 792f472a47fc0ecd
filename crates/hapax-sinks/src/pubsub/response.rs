//! Responses of Pub/Sub: a request publishes all of its messages or none.
//!
//! A success response has an id for each message. A response with fewer, or of another form, says
//! nothing about any message.

use hapax::sink::{Receipt, SinkError};
use serde::Deserialize;

use crate::api::{Failure, Response, type_of_status};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Published {
    message_ids: Vec<String>,
}

#[derive(Deserialize)]
struct Refused {
    error: Status,
}

#[derive(Deserialize)]
struct Status {
    status: String,
}

#[derive(Debug, thiserror::Error)]
#[error("response does not have an id for each message")]
struct NotAnAnswer;

/// What is stored for each message of a request that has been published.
pub(super) fn published(response: &Response, count: usize) -> Result<Receipt, Failure> {
    let published: Result<Published, _> = serde_json::from_slice(&response.head);
    if published.is_ok_and(|published| published.message_ids.len() == count) {
        return Ok(Receipt {
            status: Some(response.status.as_u16()),
            ..Receipt::default()
        });
    }
    Err(Failure {
        receipt: response.receipt(),
        ..Failure::new("answer", NotAnAnswer)
    })
}

/// The failure that a response without success reports.
pub(super) fn failure(response: &Response) -> Failure {
    let refused: Option<Refused> = serde_json::from_slice(&response.head).ok();
    let code = refused.as_ref().map_or("", |it| it.error.status.as_str());
    // The code is shown, so it is one of those that are known.
    let (error_type, code) = match code {
        "NOT_FOUND" => ("no_topic", "NOT_FOUND"),
        "PERMISSION_DENIED" => ("login", "PERMISSION_DENIED"),
        "UNAUTHENTICATED" => {
            return response.refused_signature("login", "UNAUTHENTICATED", "service_account");
        }
        "RESOURCE_EXHAUSTED" => ("throttled", "RESOURCE_EXHAUSTED"),
        "INVALID_ARGUMENT" => ("invalid", "INVALID_ARGUMENT"),
        "FAILED_PRECONDITION" => (type_of_status(response.status), "FAILED_PRECONDITION"),
        "UNAVAILABLE" => (type_of_status(response.status), "UNAVAILABLE"),
        "INTERNAL" => (type_of_status(response.status), "INTERNAL"),
        _ => return response.refused(type_of_status(response.status), None),
    };
    response.refused(error_type, Some(code))
}

/// The outcome of a single message, if the failure of its request may be its fault.
pub(super) fn of_one(failure: &Failure) -> Option<SinkError> {
    match failure.error_type {
        "too_large" => Some(failure.rejected()),
        "invalid" => Some(failure.declined()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_published_if_each_message_has_an_id() {
        let of = |body: &str| published(&Response::sample(200, body), 2);
        assert!(of("{\"messageIds\": [\"1\", \"2\"]}").is_ok());
        for other in [
            "",
            "{}",
            "<html>",
            "{\"messageIds\": []}",
            "{\"messageIds\": [\"1\"]}",
            "{\"messageIds\": [\"1\", \"2\", \"3\"]}",
            "{\"messageIds\": [\"1\", \"2\"]",
        ] {
            assert_eq!(of(other).unwrap_err().error_type, "answer", "{other}");
        }
    }

    #[test]
    fn the_type_of_a_failure_is_that_of_its_code_before_that_of_its_status() {
        for (status, code, expected) in [
            (404, "NOT_FOUND", "no_topic"),
            (403, "PERMISSION_DENIED", "login"),
            (401, "UNAUTHENTICATED", "login"),
            (429, "RESOURCE_EXHAUSTED", "throttled"),
            (400, "INVALID_ARGUMENT", "invalid"),
            (400, "FAILED_PRECONDITION", "status_4xx"),
            (503, "UNAVAILABLE", "throttled"),
            (500, "INTERNAL", "status_5xx"),
            (500, "hunter2", "status_5xx"),
            (413, "", "too_large"),
        ] {
            let body =
                format!("{{\"error\": {{\"status\": \"{code}\", \"message\": \"hunter2\"}}}}");
            let failure = failure(&Response::sample(status, &body));
            assert_eq!(failure.error_type, expected, "{code}");
            assert!(!failure.cause.to_string().contains("hunter2"));
        }
        let unknown = failure(&Response::sample(403, "<html>"));
        assert_eq!(unknown.error_type, "login");
    }
}
