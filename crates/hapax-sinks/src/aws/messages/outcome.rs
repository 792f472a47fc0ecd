//! Outcomes of messages: each message of a request has one.
//!
//! A message that the response mentions neither as stored nor as refused is not known to be stored.

use hapax::sink::SinkError;

use crate::api::{Failure, Response};

/// The outcome of one message, as the response reports it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The index of its offer.
    pub(crate) index: usize,
    /// Why the service did not take the message.
    pub(crate) refusal: Option<Refusal>,
}

/// Why a service did not take a message of a request, although it took the request.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Whether the message is at fault, and not the service.
    pub(crate) is_of_sender: bool,
    /// The code of the error.
    pub(crate) code: String,
    /// The name for metrics.
    pub(crate) error_type: &'static str,
}

#[derive(Debug, thiserror::Error)]
enum NotStored {
    #[error("response does not say that the message is stored")]
    Unmentioned,
    #[error("response does not report the outcome of each message")]
    NotAnAnswer,
    #[error("service refused the message{0}")]
    Refused(String),
}

/// The failure of a request whose success response is not that of the service.
pub(super) fn not_an_answer(response: &Response) -> Failure {
    Failure {
        receipt: response.receipt(),
        ..Failure::new("answer", NotStored::NotAnAnswer)
    }
}

/// The outcome of a message that the response does not mention.
pub(super) fn unmentioned() -> SinkError {
    Failure::new("answer", NotStored::Unmentioned).unavailable()
}

/// Whether a failure of a request may be the fault of one of its messages.
pub(super) fn concerns_one(failure: &Failure) -> bool {
    matches!(failure.error_type, "content" | "too_large" | "invalid")
}

/// The outcome of a single message with this failure.
pub(super) fn of_one(failure: &Failure) -> SinkError {
    match failure.error_type {
        "content" | "too_large" => failure.rejected(),
        "invalid" => failure.declined(),
        _ => failure.unavailable(),
    }
}

/// The outcome of a message that the service did not take. The code is shown, and no other text of
/// the response.
pub(super) fn refused(response: &Response, refusal: &Refusal) -> SinkError {
    let code = refusal.code.as_str();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let named = if !code.is_empty() && code.bytes().all(plain) {
        format!(" with the code {code}")
    } else {
        String::new()
    };
    let failure = Failure {
        receipt: response.receipt(),
        ..Failure::new(refusal.error_type, NotStored::Refused(named))
    };
    // The key that encrypts the queue or the topic is the same for all messages.
    let is_of_key = code.to_ascii_lowercase().starts_with("kms");
    match failure.error_type {
        "status_4xx" if refusal.is_of_sender && !is_of_key => failure.declined(),
        _ => of_one(&failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_given_up_only_if_it_can_never_be_taken() {
        for (is_of_sender, code, error_type, expected) in [
            (true, "InvalidMessageContents", "content", "rejected"),
            (true, "MessageTooLong", "too_large", "rejected"),
            (true, "InvalidParameter", "invalid", "declined"),
            (true, "Other", "status_4xx", "declined"),
            (true, "KMS.DisabledException", "status_4xx", "unavailable"),
            (true, "AuthorizationError", "login", "unavailable"),
            (false, "InternalError", "status_5xx", "unavailable"),
        ] {
            let outcome = outcome(is_of_sender, code, error_type);
            let kind = match outcome {
                SinkError::Rejected { .. } => "rejected",
                SinkError::Declined { .. } => "declined",
                _ => "unavailable",
            };
            assert_eq!(kind, expected, "{code}");
        }
    }

    #[test]
    fn the_code_of_a_refused_message_is_shown_unless_it_is_any_text() {
        let shown = |code| outcome(false, code, "status_5xx").error_chain();
        let chain = shown("InternalError");
        assert!(chain.contains("the code InternalError"), "{chain}");
        let chain = shown("hunter2 <b>");
        assert!(!chain.contains("hunter2"), "{chain}");
    }

    #[test]
    fn a_message_that_is_not_mentioned_is_not_known_to_be_stored() {
        assert_eq!(unmentioned().error_type(), "answer");
        assert!(matches!(unmentioned(), SinkError::Unavailable { .. }));
    }

    fn outcome(is_of_sender: bool, code: &str, error_type: &'static str) -> SinkError {
        let refusal = Refusal {
            is_of_sender,
            code: code.to_owned(),
            error_type,
        };
        refused(&Response::sample(200, ""), &refusal)
    }
}
