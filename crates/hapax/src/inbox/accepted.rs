//! The messages of one open transaction, for implementations of a store.
//!
//! A store keeps an [`Accepted`] in each transaction. With its last statements before the commit,
//! it writes the time and the result of each new message into the message's row. After the commit
//! it counts the messages: a new one counts only if its effect is committed.

use super::{Acceptance, Message};
use crate::{limits::MESSAGE_RESULT_BYTES_MAX, telemetry::INBOX_MESSAGES};

/// The messages that a transaction has accepted or recognized.
#[derive(Debug, Default)]
pub struct Accepted {
    new: Vec<Processed>,
    outcomes: Vec<(String, Acceptance)>,
}

/// A new message, as its row is completed at the end of the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processed {
    /// The consumer.
    pub consumer: String,
    /// The id of the message.
    pub message_id: String,
    /// The sender.
    pub source: String,
    /// The result that the consumer recorded.
    pub result: Option<String>,
}

/// Why a result is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// The transaction has accepted no message, or the last one was not new.
    #[error("the transaction has no new message to which the result could belong")]
    NoMessage,
    /// The result is too long.
    #[error("the result is {bytes} bytes long, at most {max} are allowed")]
    TooLong {
        /// The length of the result in bytes.
        bytes: usize,
        /// The maximum length in bytes.
        max: usize,
    },
    /// The result contains a NUL, which PostgreSQL does not store.
    #[error("the result contains a NUL character")]
    Nul,
}

impl Accepted {
    /// Adds a message with the result of accepting it.
    pub fn add(&mut self, message: &Message, acceptance: Acceptance) {
        if acceptance == Acceptance::First {
            self.new.push(Processed {
                consumer: message.consumer.clone(),
                message_id: message.message_id.clone(),
                source: message.source.clone(),
                result: None,
            });
        }
        self.outcomes.push((message.consumer.clone(), acceptance));
    }

    /// Records the result of the message that was added last.
    ///
    /// # Errors
    /// Fails if that message is not new, and if the result is too long or contains a NUL.
    pub fn record_result(&mut self, result: &str) -> Result<(), ResultError> {
        let last = self.outcomes.last();
        let is_new = last.is_some_and(|(_, it)| *it == Acceptance::First);
        let message = self.new.last_mut().filter(|_| is_new);
        let message = message.ok_or(ResultError::NoMessage)?;
        if result.len() > MESSAGE_RESULT_BYTES_MAX {
            return Err(ResultError::TooLong {
                bytes: result.len(),
                max: MESSAGE_RESULT_BYTES_MAX,
            });
        }
        if result.contains('\0') {
            return Err(ResultError::Nul);
        }
        message.result = Some(result.to_owned());
        Ok(())
    }

    /// Takes the new messages, whose rows are to be completed.
    pub fn take_new(&mut self) -> Vec<Processed> {
        std::mem::take(&mut self.new)
    }

    /// Counts the messages of a transaction that has committed.
    pub fn committed(&self) {
        for (consumer, acceptance) in &self.outcomes {
            acceptance.count(consumer);
        }
    }

    /// Counts the duplicates and mismatches of a transaction that is rolled back. Its new messages
    /// are new again.
    pub fn rolled_back(&self) {
        for (consumer, acceptance) in &self.outcomes {
            if *acceptance != Acceptance::First {
                acceptance.count(consumer);
            }
        }
    }
}

impl Acceptance {
    /// The name of the outcome in metrics and spans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "accepted",
            Self::Duplicate => "duplicate",
            Self::Mismatch => "mismatch",
        }
    }

    /// Counts a message in `hapax_inbox_messages_total`. The transactions of a store do this
    /// themselves; a consumer that accepts messages without one calls it.
    pub fn count(self, consumer: &str) {
        let consumer = consumer.to_owned();
        metrics::counter!(INBOX_MESSAGES, "consumer" => consumer, "outcome" => self.name())
            .increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_belongs_to_the_message_that_was_accepted_last() {
        let mut accepted = Accepted::default();
        assert_eq!(accepted.record_result("x"), Err(ResultError::NoMessage));
        let message = |id: &str| Message::new("ledger", "bank", id, b"").unwrap();
        accepted.add(&message("m1"), Acceptance::First);
        accepted.record_result("replaced").unwrap();
        accepted.record_result("applied").unwrap();
        accepted.add(&message("m2"), Acceptance::First);
        accepted.add(&message("m1"), Acceptance::Duplicate);
        // It would belong to the duplicate, whose row has the result of its first delivery.
        assert_eq!(accepted.record_result("x"), Err(ResultError::NoMessage));
        let new = accepted.take_new();
        let results: Vec<_> = new.iter().map(|it| it.result.as_deref()).collect();
        assert_eq!(results, [Some("applied"), None]);
    }

    #[test]
    fn a_result_has_a_bound_and_no_nul() {
        let mut accepted = Accepted::default();
        let message = Message::new("ledger", "bank", "m1", b"").unwrap();
        accepted.add(&message, Acceptance::First);
        let long = "x".repeat(MESSAGE_RESULT_BYTES_MAX);
        assert_eq!(accepted.record_result(&long), Ok(()));
        let (bytes, max) = (MESSAGE_RESULT_BYTES_MAX + 1, MESSAGE_RESULT_BYTES_MAX);
        assert_eq!(
            accepted.record_result(&format!("{long}x")),
            Err(ResultError::TooLong { bytes, max })
        );
        assert_eq!(accepted.record_result("a\0b"), Err(ResultError::Nul));
        assert_eq!(accepted.take_new()[0].result, Some(long));
    }
}
