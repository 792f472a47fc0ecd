//! Failures of AMQP: why the broker did not take an event, with the broker's own message if there
//! is one.
//!
//! If no queue is bound for a message, or if it was published after messages that were refused, the
//! broker can still accept other messages. An error that closes the channel for all messages, a
//! full queue and a lost connection concern the broker.

use std::io;

use hapax::sink::{Receipt, SinkError};
use lapin::{Error, ErrorKind, protocol::AMQPError};
use tokio::time::error::Elapsed;

use super::receipt;
use crate::resolve::LookupError;

/// The code of `ACCESS_REFUSED`, for one topic or for a whole exchange.
const ACCESS_REFUSED: u16 = 403;
/// The code of `PRECONDITION_FAILED`, for example for a message that is too large.
const PRECONDITION_FAILED: u16 = 406;

/// A failure. All but one are transient.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("broker cannot be reached")]
    Connect(#[source] Error),
    #[error("broker has no address")]
    Resolve(#[source] LookupError),
    #[error("broker closed the channel or the connection")]
    Closed(#[source] Error),
    #[error("broker blocks publishers: {0}")]
    Blocked(String),
    #[error("broker did not respond in time")]
    Timeout,
    #[error("broker closed too many channels because of other events of this call")]
    CutOff,
    #[error("broker refused the event: a queue is full, or its node is down")]
    Nack,
    #[error("no queue is bound to exchange `{exchange}` for routing key `{routing_key}`: {text}")]
    Unroutable {
        exchange: String,
        routing_key: String,
        code: u16,
        text: String,
    },
}

impl Failure {
    /// The connection was not opened in time.
    pub(super) fn not_connected(elapsed: Elapsed) -> Self {
        Self::Connect(io::Error::new(io::ErrorKind::TimedOut, elapsed).into())
    }

    /// Whether the broker may object to a single event and not to all of them.
    pub(super) fn concerns_one(&self) -> bool {
        // A user without write permission on the exchange is refused for every event.
        let is_precondition = |said: &AMQPError| said.get_id() == PRECONDITION_FAILED;
        self.is_of_topic()
            || matches!(self, Self::Closed(_)) && self.said().is_some_and(is_precondition)
    }

    /// Whether the broker refused this event alone and accepts others: no queue is bound for it, or
    /// the user may write to the exchange but not with this routing key.
    fn is_of_one(&self) -> bool {
        matches!(self, Self::Unroutable { .. } | Self::CutOff) || self.is_of_topic()
    }

    /// Whether the user may write to the exchange but not with this routing key.
    pub(super) fn is_of_topic(&self) -> bool {
        let is_of_topic = |said: &AMQPError| {
            said.get_id() == ACCESS_REFUSED
                && said.get_message().as_str().contains("access to topic")
        };
        matches!(self, Self::Closed(_)) && self.said().is_some_and(is_of_topic)
    }

    /// Whether the failure is permanent: the event is larger than the broker's limit.
    pub(super) fn is_for_good(&self) -> bool {
        self.said().is_some_and(|said| {
            said.get_id() == PRECONDITION_FAILED
                && said.get_message().as_str().contains("message size")
        })
    }

    fn said(&self) -> Option<&AMQPError> {
        match self {
            Self::Connect(error) | Self::Closed(error) => match error.kind() {
                ErrorKind::ProtocolError(said) => Some(said),
                _ => None,
            },
            _ => None,
        }
    }

    fn error_type(&self) -> &'static str {
        match self {
            Self::Connect(_) if self.said().is_some() => "refused",
            Self::Connect(_) => "connect",
            Self::Resolve(_) => "resolve",
            Self::Closed(_) if self.said().is_some() => "closed",
            Self::Closed(_) => "io",
            Self::Blocked(_) => "blocked",
            Self::Timeout => "timeout",
            Self::CutOff => "cut_off",
            Self::Nack => "nack",
            Self::Unroutable { .. } => "unroutable",
        }
    }

    fn receipt(&self) -> Receipt {
        match self {
            Self::Unroutable { code, text, .. } => receipt(*code, text.clone()),
            _ => self.said().map_or_else(Receipt::default, |said| {
                receipt(said.get_id(), said.get_message().as_str().to_owned())
            }),
        }
    }
}

impl From<Failure> for SinkError {
    fn from(failure: Failure) -> Self {
        let receipt = failure.receipt();
        if failure.is_for_good() {
            return Self::Rejected {
                error_type: "too_large",
                receipt,
                source: failure.into(),
            };
        }
        let error_type = failure.error_type();
        if failure.is_of_one() {
            return Self::Declined {
                retry_after: None,
                error_type,
                receipt,
                source: failure.into(),
            };
        }
        Self::Unavailable {
            retry_after: None,
            error_type,
            receipt,
            source: failure.into(),
        }
    }
}
