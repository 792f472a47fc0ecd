//! Why a consumer does not get what it asked for.

use std::time::Duration;

use super::cursor::CursorError;
use crate::{clock::Timestamp, store::StoreError};

/// The error of a request of a consumer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PollError {
    /// There is no such endpoint, or the token is not one of its tokens. Which of the two is not
    /// said.
    #[error("there is no such endpoint, or the token is not valid")]
    Unauthorized,
    /// There is no such event: it was purged, it never existed, or it is not for this endpoint. Which of
    /// them is not said.
    #[error("there is no such event")]
    NoEvent,
    /// The cursor cannot be used here.
    #[error("the cursor {0}")]
    Cursor(#[from] CursorError),
    /// Events after the cursor may be missing: they were purged, or the database was set back and the
    /// cursor is of a part of its history that it has lost.
    #[error("events after the cursor are missing: they were purged, or the database was set back")]
    Gone {
        /// Whether the database was set back.
        is_set_back: bool,
        /// The cursor with which to continue.
        cursor: String,
        /// When the first event after that cursor was written, as far as one was found at once.
        oldest_at: Option<Timestamp>,
    },
    /// The cursor is behind the committed one.
    #[error("the cursor is behind the committed one")]
    Behind {
        /// The committed cursor.
        committed: String,
    },
    /// The cursor is neither behind nor ahead of the committed one: two consumers have read at the
    /// same time.
    #[error("the cursor is neither behind nor ahead of the committed one")]
    Incomparable {
        /// The committed cursor.
        committed: String,
    },
    /// The endpoint was polled too often.
    #[error("the endpoint is polled too often")]
    TooOften {
        /// When the next request is accepted.
        retry_after: Duration,
    },
    /// Too many polls wait for events, at this endpoint or in all.
    #[error("too many polls wait for events")]
    TooManyWaiting,
    /// So many transactions are open that a cursor would not fit into a URL.
    #[error("too many transactions are open to write a cursor")]
    CursorTooLong,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
