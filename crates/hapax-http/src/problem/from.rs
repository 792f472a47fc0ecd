//! What a handler's `?` makes of the errors of the store and the outbox.

use hapax::{outbox::EventError, store::StoreError};

use super::{INTERNAL, Problem, TIMEOUT, UNAVAILABLE};
use crate::settings::RETRY_AFTER;

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Unavailable { .. } | StoreError::Conflict { .. } | StoreError::Fenced => {
                Self::new(UNAVAILABLE)
                    .detail("the store cannot be used now; try again")
                    .retry_after(RETRY_AFTER)
                    .caused_by(error)
            }
            StoreError::TimedOut => Self::new(TIMEOUT)
                .detail("the transaction took too long and was rolled back")
                .caused_by(error),
            _ => Self::internal(error),
        }
    }
}

impl From<EventError> for Problem {
    fn from(error: EventError) -> Self {
        Self::new(INTERNAL)
            .detail("an event of this request could not be carried; nothing was changed")
            .caused_by(error)
    }
}
