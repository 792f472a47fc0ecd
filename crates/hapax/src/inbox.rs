//! Inbox: a consumer processes each message once, however often it is delivered.
//!
//! A consumer accepts a [`Message`] in the transaction of its effect. The first time, the message
//! is new. After that it is a duplicate, and the consumer acknowledges it without doing anything.
//! The consumer acknowledges after the commit: if it crashes between the two, the message is
//! delivered again, and the inbox recognizes it.
//!
//! The message's row keeps when the message was received, when its effect was written, and the
//! result that the consumer records with [`Transaction::record_result`].
//!
//! [`Transaction::record_result`]: crate::store::Transaction::record_result
//!
//! ```
//! use hapax::{event::Headers, inbox::{Acceptance, Message}, store::{Keys, StoreError, Transaction}};
//!
//! /// Books a payment once. Returns whether this call did it.
//! async fn book<S: Keys>(store: &S, id: &str, payload: &[u8]) -> Result<bool, StoreError> {
//!     let message = Message::new("ledger", "bank", id, payload).expect("valid names");
//!     let mut tx = store.begin(None, Headers::new()).await?;
//!     if tx.accept(&message).await? != Acceptance::First {
//!         tx.rollback().await;
//!         return Ok(false);
//!     }
//!     // Write the rows of the effect here, in the same transaction.
//!     tx.record_result("booked").expect("a short text");
//!     tx.commit().await?;
//!     Ok(true)
//! }
//! ```
//!
//! If the effect is nothing but writes of its transaction, the message can be accepted by the
//! commit ([`Keys::accept_at_commit`]). On PostgreSQL this saves a round trip. A transaction that
//! fails has committed nothing, and the message is accepted in the regular way after that.
//!
//! [`Keys::accept_at_commit`]: crate::store::Keys::accept_at_commit
//!
//! ```
//! # use hapax::{event::Headers, inbox::{Acceptance, Message}, store::{Keys, StoreError, Transaction}};
//! /// Books a payment once. Returns whether this call did it.
//! async fn book<S: Keys>(store: &S, message: &Message) -> Result<bool, StoreError> {
//!     if let Some(tx) = store.accept_at_commit(None, Headers::new(), message).await? {
//!         match written(tx).await {
//!             Ok(()) => return Ok(true),
//!             // The commit may have happened, or may still happen. The next delivery finds out.
//!             Err(error @ StoreError::Unavailable { .. }) => return Err(error),
//!             // It was accepted before, or this is not known.
//!             Err(_) => {}
//!         }
//!     }
//!     let mut tx = store.begin(None, Headers::new()).await?;
//!     if tx.accept(message).await? != Acceptance::First {
//!         tx.rollback().await;
//!         return Ok(false);
//!     }
//!     written(tx).await?;
//!     Ok(true)
//! }
//!
//! async fn written<Tx: Transaction>(mut tx: Tx) -> Result<(), StoreError> {
//!     // Write the rows of the effect here, and nothing that a rollback does not undo.
//!     tx.record_result("booked").expect("a short text");
//!     tx.commit().await
//! }
//! ```

mod accepted;

use sha2::{Digest, Sha256};

pub use accepted::{Accepted, Processed, ResultError};

use crate::{key::KeyError, limits::MESSAGE_ID_BYTES_MAX};

/// A message, as the inbox identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The consumer. Each consumer accepts every message once.
    pub consumer: String,
    /// The sender's id of the message: `webhook-id`, `event_id`, or a broker's message id.
    pub message_id: String,
    /// The sender. Ids are unique per sender only: a message is identified by its source, its id
    /// and its consumer, and the same id from another source is another message.
    ///
    /// The source is stored. It must not change while messages may still be delivered again, and
    /// each sender must have exactly one source; a message that arrives under two sources is
    /// accepted twice.
    pub source: String,
    /// SHA-256 of the payload.
    pub payload_hash: [u8; 32],
}

impl Message {
    /// Creates the message `message_id` from `source` with `payload`, for `consumer`.
    ///
    /// # Errors
    /// Fails if a name is empty or longer than 255 bytes.
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

/// Whether a message is to be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a message that was not accepted must have no effect"]
pub enum Acceptance {
    /// The message is new. Process it in this transaction.
    First,
    /// The message was accepted before. Commit, acknowledge it, and do nothing else. Until this
    /// transaction has committed, the earlier acceptance may still be rolled back.
    Duplicate,
    /// A message with the same source and id but another payload was accepted before. Investigate;
    /// do not process it.
    Mismatch,
}
