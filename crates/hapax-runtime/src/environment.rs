//! Environment of a process: its clock and its random numbers.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use hapax::{Clock, Random};

/// The wall clock.
pub fn clock() -> Clock {
    Clock::new(time())
}

/// The function that reads the wall clock, for what starts before the clock is passed in.
#[expect(
    clippy::disallowed_methods,
    reason = "this is where time is passed in from"
)]
pub fn time() -> fn() -> SystemTime {
    SystemTime::now
}

/// Random numbers: a keyed hash of a counter, unpredictable without the key.
pub fn random() -> Random {
    let (key, count) = (RandomState::new(), AtomicU64::new(0));
    Random::new(move || key.hash_one(count.fetch_add(1, Ordering::Relaxed)))
}
