//! A clock and names of a provider's own: it shares neither with its callers.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// Milliseconds since the Unix epoch, by this process's clock.
#[expect(
    clippy::disallowed_methods,
    reason = "a foreign system: nobody passes it the time"
)]
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Makes names that no other ledger has either: a prefix and 128 random bits.
#[derive(Debug, Default)]
pub(crate) struct Names {
    keys: [RandomState; 2],
    count: AtomicU64,
}

impl Names {
    /// A new name such as `ch_9f...`.
    pub(crate) fn mint(&self, prefix: &str) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let [high, low] = [0, 1].map(|half: usize| self.keys[half].hash_one((half, count)));
        format!("{prefix}_{high:016x}{low:016x}")
    }
}
