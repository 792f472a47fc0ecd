//! Time and randomness that are the same in every run.

use std::sync::atomic::{AtomicU64, Ordering};

use hapax::{Clock, Random, Timestamp};

/// The time at which the clock stands: the start of 2026.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);
/// Odd, so that a counter that grows by it takes every value.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A clock that stands still.
pub(crate) fn clock() -> Clock {
    Clock::new(|| NOW)
}

/// A fixed sequence of numbers that are spread like random ones.
pub(crate) fn random() -> Random {
    let counter = AtomicU64::new(0);
    Random::new(move || spread(counter.fetch_add(1, Ordering::Relaxed)))
}

/// A number that is spread like a random one: `SplitMix64`.
pub(crate) fn spread(number: u64) -> u64 {
    let bits = number.wrapping_add(1).wrapping_mul(STEP);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
