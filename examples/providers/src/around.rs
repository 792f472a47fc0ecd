//! The provider's clock and its generator of object ids, which it does not share with its callers.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// Returns the time in milliseconds since the Unix epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "the provider is an external system with its own clock"
)]
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Generates ids that are unique across all ledgers: a prefix and 128 random bits.
#[derive(Debug, Default)]
pub(crate) struct Names {
    keys: [RandomState; 2],
    count: AtomicU64,
}

impl Names {
    /// Returns a new id such as `ch_9f...`.
    pub(crate) fn mint(&self, prefix: &str) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let [high, low] = [0, 1].map(|half: usize| self.keys[half].hash_one((half, count)));
        format!("{prefix}_{high:016x}{low:016x}")
    }
}
