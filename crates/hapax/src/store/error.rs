//! Why a store did not do what it was asked.
//!
//! Each variant is a decision of whoever asked: try again, or not, and whether it is known that
//! nothing happened.

use crate::{outbox::EventError, sink::BoxError, telemetry::story};

/// Why a store did not do what it was asked.
///
/// The variant answers: may the same thing be tried again, and is it known that nothing happened?
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached or cannot write now (disk full, read-only, shut down).
    #[error("store is unavailable")]
    Unavailable {
        /// What went wrong.
        source: BoxError,
    },
    /// The transaction took too long and was rolled back.
    #[error("transaction timed out and was rolled back")]
    TimedOut,
    /// The transaction lost against another one; nothing was committed, and it may run again at
    /// once.
    #[error("transaction lost against another one and was rolled back")]
    Conflict {
        /// What the database said.
        source: BoxError,
    },
    /// Another owner took over; nothing was written.
    #[error("ownership was lost to a later epoch")]
    Fenced,
    /// The store is not in the history that was read: a backup was restored, or it was set back.
    /// Nothing was written, and the owner begins again at the checkpoint that the store holds.
    #[error("the store was set back: {what}")]
    SetBack {
        /// What the store holds, and what was read.
        what: String,
    },
    /// A statement failed; its transaction was rolled back.
    #[error("statement failed")]
    Statement {
        /// What the database said.
        source: BoxError,
    },
    /// The database holds something this version does not understand.
    #[error("stored row is unreadable: {what}")]
    Corrupt {
        /// What could not be read.
        what: String,
    },
    /// An event could not be carried.
    #[error(transparent)]
    Event(#[from] EventError),
}

impl StoreError {
    /// The failure and what caused it, in one line.
    pub fn story(&self) -> String {
        story(self)
    }
}
