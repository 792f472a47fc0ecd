//! Outcomes of NATS messages, transient or permanent.
//!
//! Only properties of the event itself are permanent failures: a message that is larger than the
//! server or the stream accepts, or a subject that is too long. A missing or full stream, a missing
//! permission and a lost connection can be repaired. If no stream lists a subject, or if the
//! subject is forbidden, events with other subjects may still be accepted.

use std::sync::Arc;

use async_nats::{
    ConnectError, ConnectErrorKind,
    jetstream::{ErrorCode, publish::PublishAck, response::Response},
};
use hapax::sink::{Outcome, Receipt, SinkError};

use crate::{resolve::LookupError, tls};

/// Why a message was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("nats server has no address")]
    Resolve(#[source] LookupError),
    #[error("cannot connect to nats")]
    Connect(#[source] Arc<ConnectError>),
    #[error("nats did not accept the login in time")]
    Connecting,
    #[error("connection to nats was lost{}", said(.0.as_deref()))]
    Lost(Option<Arc<str>>),
    #[error("nats did not acknowledge in time{}", said(.0.as_deref()))]
    Silent(Option<Arc<str>>),
    #[error("no stream lists subject {0}: create one on that server")]
    NoStream(String),
    #[error("no stream accepts subject {0} now: {1}")]
    Away(String, &'static str),
    #[error("nats does not permit this user to publish to subject {0}")]
    Forbidden(String),
    #[error("stream did not store the message: {description} (error {code})")]
    Refused { code: u64, description: String },
    #[error("message is larger than the stream accepts: {0}")]
    LargerThanStream(String),
    #[error("message of {bytes} bytes is larger than the server's max_payload of {max}")]
    LargerThanServer { bytes: usize, max: usize },
    #[error("subject of {0} bytes is too long")]
    Subject(usize),
    #[error("nats client refused the message: {0}")]
    Client(String),
    #[error("response is not an acknowledgement: {0}")]
    Answer(String),
}

impl From<Failure> for SinkError {
    fn from(failure: Failure) -> Self {
        use Failure as F;
        let error_type = match &failure {
            F::Connect(error) if tls::is_at_fault(&**error) => "tls",
            F::Connect(error) => connect_type(error.kind()),
            F::Resolve(_) => "resolve",
            F::Connecting | F::Silent(_) => "timeout",
            F::Lost(_) => "disconnected",
            F::NoStream(_) | F::Away(..) => "no_stream",
            F::Forbidden(_) => "forbidden",
            F::Refused { .. } => "refused",
            F::LargerThanStream(_) | F::LargerThanServer { .. } => "too_large",
            F::Subject(_) => "subject",
            F::Client(_) => "client",
            F::Answer(_) => "answer",
        };
        match failure {
            F::LargerThanStream(_) | F::LargerThanServer { .. } | F::Subject(_) => {
                Self::rejected(error_type, failure)
            }
            F::NoStream(_) | F::Forbidden(_) => Self::declined(error_type, failure),
            _ => Self::unavailable(error_type, failure),
        }
    }
}

/// Evaluates the response to a message that was published to `subject`.
pub(super) fn outcome_of(message: &async_nats::Message, subject: &str) -> Outcome {
    if is_nobodys(message) {
        return Err(Failure::NoStream(subject.to_owned()).into());
    }
    // A duplicate is acknowledged like a new message: the stream has it. For nearly all responses
    // it is enough to read the sequence number in the stream.
    if let Ok(Stored {
        seq: 1..,
        error: None,
    }) = serde_json::from_slice(&message.payload)
    {
        return Ok(Receipt::default());
    }
    match serde_json::from_slice::<Response<PublishAck>>(&message.payload) {
        Ok(Response::Ok(_)) => Ok(Receipt::default()),
        Ok(Response::Err { error }) => {
            let description = error.to_string();
            let failure = match error.error_code() {
                ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => Failure::LargerThanStream(description),
                code => Failure::Refused {
                    code: code.0,
                    description,
                },
            };
            Err(failure.into())
        }
        Err(error) => Err(Failure::Answer(error.to_string()).into()),
    }
}

/// Whether the response says that the subject has no listeners.
pub(super) fn is_nobodys(message: &async_nats::Message) -> bool {
    message.status == Some(async_nats::StatusCode::NO_RESPONDERS)
}

/// The first fields of an acknowledgement.
#[derive(serde::Deserialize)]
struct Stored {
    seq: u64,
    error: Option<serde::de::IgnoredAny>,
}

fn connect_type(kind: ConnectErrorKind) -> &'static str {
    match kind {
        ConnectErrorKind::Dns => "resolve",
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => "login",
        ConnectErrorKind::TimedOut => "timeout",
        ConnectErrorKind::Tls => "tls",
        _ => "connect",
    }
}

/// The last error that the server reported.
fn said(words: Option<&str>) -> String {
    words.map(|words| format!(": {words}")).unwrap_or_default()
}
