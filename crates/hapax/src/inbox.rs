//! Taking an event once, however often it is delivered.
//!
//! A consumer accepts a [`Message`] in the transaction of the effect. The
//! first time that is true; later it is not, and the consumer acknowledges
//! without doing anything. The acknowledgement comes after the commit: a crash
//! between the two brings the message again, and the inbox knows it.

use sha2::{Digest, Sha256};

use crate::{key::KeyError, limits::MESSAGE_ID_BYTES_MAX};

/// A delivery as the inbox sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who takes it: each consumer takes every message once.
    pub consumer: String,
    /// The sender's name for it: `webhook-id`, `event_id`, a broker's message id.
    pub message_id: String,
    /// Who sent it. Ids are unique at their sender only: a message is identified by its source, its
    /// id and its consumer, and the same id from another source is another message.
    ///
    /// It is stored, so it must not change while messages may still come again, and one sender must
    /// have one source: under two it would be taken twice.
    pub source: String,
    /// SHA-256 of what it said.
    pub payload_hash: [u8; 32],
}

impl Message {
    /// The message `message_id` from `source`, saying `payload`, for `consumer`.
    ///
    /// # Errors
    /// Fails when a name is empty or longer than 255 bytes.
    pub fn new(
        consumer: impl Into<String>,
        source: impl Into<String>,
        message_id: impl Into<String>,
        payload: &[u8],
    ) -> Result<Self, KeyError> {
        let message = Self {
            consumer: consumer.into(),
            source: source.into(),
            message_id: message_id.into(),
            payload_hash: Sha256::digest(payload).into(),
        };
        for name in [&message.consumer, &message.source, &message.message_id] {
            match name.len() {
                0 => return Err(KeyError::Empty),
                bytes if bytes > MESSAGE_ID_BYTES_MAX => {
                    return Err(KeyError::TooLong {
                        bytes,
                        max: MESSAGE_ID_BYTES_MAX,
                    });
                }
                _ => {}
            }
        }
        Ok(message)
    }
}

/// Whether a message is to be acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a message that was not accepted must have no effect"]
pub enum Acceptance {
    /// It is new: act on it, in this transaction.
    First,
    /// It was taken before: commit, acknowledge it and stop. Before the commit it may have been
    /// taken by somebody whose own commit is still to come, and fails.
    Duplicate,
    /// Its source's id was taken before with another payload: look into it, and do nothing.
    Mismatch,
}
