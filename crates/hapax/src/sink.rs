//! A kind of place where events go.
//!
//! A [`Sink`] takes a batch of offers and answers each one. It does not retry,
//! wait or remember: the relay owns time. What it must do is answer truly:
//! `Ok` only when the far side has the event for good, and otherwise whether
//! the same event may be taken later.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::{
    event::Event,
    outbox::OutboxEvent,
    telemetry::story,
    trace::{TRACEPARENT, TraceContext},
};

/// Whatever went wrong further down.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// One event, offered once.
#[derive(Clone, Debug)]
pub struct Offer {
    /// What is offered.
    pub event: Arc<OutboxEvent>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The attempt's own span, where one tells of it.
    pub trace: Option<TraceContext>,
}

impl Offer {
    /// The event that is offered.
    pub fn event(&self) -> &Event {
        &self.event.event
    }

    /// The `traceparent` that goes beside the event: the attempt's own, or else the event's.
    ///
    /// It differs from one attempt to the next, and belongs in no body that is hashed.
    pub fn traceparent(&self) -> Option<Cow<'_, str>> {
        match self.trace {
            Some(own) => Some(Cow::Owned(own.to_string())),
            None => self.event().headers.get(TRACEPARENT).map(Cow::from),
        }
    }
}

/// A kind of place: webhook, mail, file, function.
pub trait Sink: Send + Sync + 'static {
    /// The word for this kind in metrics and logs.
    fn kind(&self) -> &'static str;

    /// Offers a batch and answers each offer, in order.
    ///
    /// The answer has exactly as many elements as `offers`. A sink may be dropped in the middle
    /// of this call; what it had sent by then counts as an attempt whose outcome is unknown.
    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>>;

    /// The most offers that one call can make good use of.
    fn batch_max(&self) -> usize {
        1
    }
}

/// What came of one offer.
pub type Outcome = Result<Receipt, SinkError>;

/// What the far side said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Its status code, where its protocol has one.
    pub status: Option<u16>,
    /// The beginning of its response, at most 16 KiB.
    pub head: Bytes,
}

/// Why a sink did not take an event.
///
/// The variant answers what the relay asks: again, or never? And is it the far side, or this event?
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The far side may take the same event later; it would not have taken another one either.
    ///
    /// Ten of these in a row open the destination's breaker.
    #[error("sink is unavailable")]
    Unavailable {
        /// The least it asked us to wait.
        retry_after: Option<Duration>,
        /// What kind of failure it was: a word for metrics, from a small set.
        error_type: &'static str,
        /// What the far side said, if it said anything.
        receipt: Receipt,
        /// What went wrong.
        source: BoxError,
    },
    /// The far side is there, and does not take this event now: no queue listens for its type, the
    /// endpoint calls its content wrong.
    ///
    /// It may be taken later, and is offered again by the destination's schedule. Nothing follows for
    /// other events: it never opens the destination's breaker.
    #[error("sink declined the event")]
    Declined {
        /// The least it asked us to wait.
        retry_after: Option<Duration>,
        /// What kind of failure it was: a word for metrics, from a small set.
        error_type: &'static str,
        /// What the far side said, if it said anything.
        receipt: Receipt,
        /// What it objected to.
        source: BoxError,
    },
    /// The far side will never take this event.
    #[error("sink rejected the event")]
    Rejected {
        /// What kind of failure it was.
        error_type: &'static str,
        /// What the far side said, if it said anything.
        receipt: Receipt,
        /// What it objected to.
        source: BoxError,
    },
    /// The far side wants no events at all any more: the destination is to be disabled.
    #[error("sink is gone")]
    Gone {
        /// What the far side said.
        receipt: Receipt,
        /// How it said so.
        source: BoxError,
    },
}

impl SinkError {
    /// A failure that may pass, with no word from the far side.
    pub fn unavailable(error_type: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Unavailable {
            retry_after: None,
            error_type,
            receipt: Receipt::default(),
            source: source.into(),
        }
    }

    /// A failure of this event alone that may pass, with no word from the far side.
    pub fn declined(error_type: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Declined {
            retry_after: None,
            error_type,
            receipt: Receipt::default(),
            source: source.into(),
        }
    }

    /// A failure that will not pass, with no word from the far side.
    pub fn rejected(error_type: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Rejected {
            error_type,
            receipt: Receipt::default(),
            source: source.into(),
        }
    }

    /// The word for this failure in metrics.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Unavailable { error_type, .. }
            | Self::Declined { error_type, .. }
            | Self::Rejected { error_type, .. } => error_type,
            Self::Gone { .. } => "gone",
        }
    }

    /// What the far side said.
    pub fn receipt(&self) -> &Receipt {
        match self {
            Self::Unavailable { receipt, .. }
            | Self::Declined { receipt, .. }
            | Self::Rejected { receipt, .. }
            | Self::Gone { receipt, .. } => receipt,
        }
    }

    /// The failure and what caused it, in one line.
    pub fn story(&self) -> String {
        story(self)
    }
}
