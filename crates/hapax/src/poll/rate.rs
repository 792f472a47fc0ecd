//! Rate limit of polling endpoints.

use std::num::NonZeroU32;

use crate::limits::{POLLING_BURST, POLLING_RATE};

/// How often one endpoint may be polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollRate {
    /// Requests per second in the long run.
    pub per_second: NonZeroU32,
    /// Requests that may come at once after a pause.
    pub burst: NonZeroU32,
}

impl Default for PollRate {
    fn default() -> Self {
        Self {
            per_second: NonZeroU32::new(POLLING_RATE).unwrap_or(NonZeroU32::MIN),
            burst: NonZeroU32::new(POLLING_BURST).unwrap_or(NonZeroU32::MIN),
        }
    }
}
