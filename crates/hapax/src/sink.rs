//! Sinks: the kinds of receivers that events are delivered to.
//!
//! A [`Sink`] receives a batch of offers and returns an outcome for each. It does not retry, wait
//! or store anything; the relay does. A sink must report truthfully: `Ok` only if the receiver has
//! the event permanently, otherwise whether the receiver may take the same event later.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{
    event::Event,
    outbox::OutboxEvent,
    telemetry::error_chain,
    trace::{TRACEPARENT, TraceContext},
};

/// The parts of an event in a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PayloadMode {
    /// The payload.
    #[default]
    Full,
    /// The id of the event and a link, from which the receiver fetches it.
    Thin,
}

impl PayloadMode {
    /// The word in rows and settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Thin => "thin",
        }
    }

    /// Parses what [`as_str`](Self::as_str) returns.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Full, Self::Thin]
            .into_iter()
            .find(|mode| mode.as_str() == text)
    }
}

/// The cause of an error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// One attempt to deliver one event.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The event.
    pub event: Arc<OutboxEvent>,
    /// The number of the attempt, starting at 1.
    pub attempt: u32,
    /// The span of the attempt, if it is traced.
    pub trace: Option<TraceContext>,
}

impl Offer {
    /// The event.
    pub fn event(&self) -> &Event {
        &self.event.event
    }

    /// The `traceparent` to send with the event: that of the attempt, or else that of the event.
    ///
    /// It differs between attempts, and must not be part of a body that is hashed.
    pub fn traceparent(&self) -> Option<Cow<'_, str>> {
        match self.trace {
            Some(own) => Some(Cow::Owned(own.to_string())),
            None => self.event().headers.get(TRACEPARENT).map(Cow::from),
        }
    }
}

/// A kind of receiver: webhook, mail, file, function.
pub trait Sink: Send + Sync + 'static {
    /// The name of this kind in metrics and logs.
    fn kind(&self) -> &'static str;

    /// Delivers a batch and returns an outcome for each offer, in order.
    ///
    /// The result has exactly as many elements as `offers`. The future may be dropped before it
    /// completes; what was sent by then counts as an attempt with an unknown outcome.
    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>>;

    /// The maximum useful size of a batch.
    fn batch_max(&self) -> usize {
        1
    }
}

/// The outcome of one offer.
pub type Outcome = Result<Receipt, SinkError>;

/// The response of the receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The status code, if the protocol has one.
    pub status: Option<u16>,
    /// The beginning of the response, at most 16 KiB.
    pub head: Bytes,
}

/// Why a sink could not deliver an event.
///
/// The variant says whether the relay should try again, and whether the failure concerns the
/// receiver or only this event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The receiver may take the same event later. It would not have taken another event either.
    ///
    /// Ten consecutive failures of this kind open the destination's circuit breaker.
    #[error("sink is unavailable")]
    Unavailable {
        /// The minimum delay that the receiver asked for.
        retry_after: Option<Duration>,
        /// The kind of failure: a name for metrics, from a small set.
        error_type: &'static str,
        /// The response of the receiver, if there was one.
        receipt: Receipt,
        /// The cause.
        source: BoxError,
    },
    /// The receiver is available but does not take this event now: no queue is bound for its type,
    /// or the endpoint rejects its content.
    ///
    /// The event is retried by the destination's schedule. Other events are not affected: this
    /// failure never opens the destination's circuit breaker.
    #[error("sink declined the event")]
    Declined {
        /// The minimum delay that the receiver asked for.
        retry_after: Option<Duration>,
        /// The kind of failure: a name for metrics, from a small set.
        error_type: &'static str,
        /// The response of the receiver, if there was one.
        receipt: Receipt,
        /// The cause.
        source: BoxError,
    },
    /// The receiver will never take this event.
    #[error("sink rejected the event")]
    Rejected {
        /// The kind of failure.
        error_type: &'static str,
        /// The response of the receiver, if there was one.
        receipt: Receipt,
        /// The cause.
        source: BoxError,
    },
    /// The receiver does not want any more events. The destination is disabled.
    #[error("sink is gone")]
    Gone {
        /// The response of the receiver.
        receipt: Receipt,
        /// The cause.
        source: BoxError,
    },
}

impl SinkError {
    /// A temporary failure without a response of the receiver.
    pub fn unavailable(error_type: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Unavailable {
            retry_after: None,
            error_type,
            receipt: Receipt::default(),
            source: source.into(),
        }
    }

    /// A temporary failure of this event alone, without a response of the receiver.
    pub fn declined(error_type: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Declined {
            retry_after: None,
            error_type,
            receipt: Receipt::default(),
            source: source.into(),
        }
    }

    /// A permanent failure without a response of the receiver.
    pub fn rejected(error_type: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Rejected {
            error_type,
            receipt: Receipt::default(),
            source: source.into(),
        }
    }

    /// The name of this failure in metrics.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Unavailable { error_type, .. }
            | Self::Declined { error_type, .. }
            | Self::Rejected { error_type, .. } => error_type,
            Self::Gone { .. } => "gone",
        }
    }

    /// The response of the receiver.
    pub fn receipt(&self) -> &Receipt {
        match self {
            Self::Unavailable { receipt, .. }
            | Self::Declined { receipt, .. }
            | Self::Rejected { receipt, .. }
            | Self::Gone { receipt, .. } => receipt,
        }
    }

    /// The error and its causes, in one line.
    pub fn error_chain(&self) -> String {
        error_chain(self)
    }
}
