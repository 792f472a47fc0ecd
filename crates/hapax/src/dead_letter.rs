//! Events that were given up on, with why.

use std::sync::Arc;

use crate::{clock::Timestamp, delivery::Attempt, outbox::OutboxEvent};

/// An event that a destination did not take in all its attempts.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// The event.
    pub event: Arc<OutboxEvent>,
    /// How many attempts were made.
    pub attempts: u32,
    /// The last error, in one line.
    pub last_error: String,
    /// When it was given up.
    pub died_at: Timestamp,
    /// Every attempt, in order.
    pub log: Vec<Attempt>,
}
