//! Checks of events that are emitted, beyond the rules of every event.
//!
//! A store passes each event to the check of its settings before it is written. An event that is
//! refused fails the `emit` of its handler, and nothing of it is kept. The catalogue of event types
//! is such a check, with the feature `catalogue`.

use std::{fmt, sync::Arc};

use super::EventError;
use crate::event::Event;

type Check = dyn Fn(&Event) -> Result<(), EventError> + Send + Sync;

/// A check of events that are emitted. The default accepts every event.
#[derive(Clone, Default)]
pub struct EventCheck(Option<Arc<Check>>);

impl EventCheck {
    /// No check.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Calls `check` with each event, before its payload is encrypted.
    pub fn calling(
        check: impl Fn(&Event) -> Result<(), EventError> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(check)))
    }

    /// Checks an event.
    ///
    /// # Errors
    /// Fails if the event is refused.
    pub fn check(&self, event: &Event) -> Result<(), EventError> {
        self.0.as_ref().map_or(Ok(()), |check| check(event))
    }
}

impl fmt::Debug for EventCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "EventCheck(set)"
        } else {
            "EventCheck(none)"
        })
    }
}

/// Mismatch of a payload with the schema of its type: where, and by which rule. It contains no value
/// of the payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("payload of {kind}, version {version}: {pointer:?} does not match {rule:?}: {problem}")]
pub struct Mismatch {
    /// The type of the event.
    pub kind: String,
    /// The version of the schema.
    pub version: u32,
    /// The JSON pointer of the value in the payload; empty for the payload itself.
    pub pointer: String,
    /// The keyword of the schema, such as `required`.
    pub rule: String,
    /// What the rule expects.
    pub problem: String,
}
