//! Dead letters: events that are not attempted again.

use std::sync::Arc;

use crate::{clock::Timestamp, delivery::Attempt, outbox::OutboxEvent};

/// An event that a destination has not accepted in any of its attempts.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// The event.
    pub event: Arc<OutboxEvent>,
    /// The number of attempts.
    pub attempts: u32,
    /// The last error, in one line.
    pub last_error: String,
    /// When the event became a dead letter.
    pub died_at: Timestamp,
    /// All attempts, in order.
    pub log: Vec<Attempt>,
}
