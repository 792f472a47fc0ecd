//! Environment of the process: time, randomness, and node names.

use std::{
    hash::{BuildHasher as _, RandomState},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

pub(crate) use hapax::telemetry::error_chain;
use hapax::{Clock, Random};

/// The wall clock.
#[expect(
    clippy::disallowed_methods,
    reason = "this is where time is passed in from"
)]
pub(crate) fn clock() -> Clock {
    Clock::new(SystemTime::now)
}

/// The wall clock in nanoseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "this is where time is passed in from"
)]
pub(crate) fn time() -> fn() -> SystemTime {
    SystemTime::now
}

/// Random numbers: a keyed hash of a counter, unpredictable without the key.
pub(crate) fn random() -> Random {
    let (key, count) = (RandomState::new(), AtomicU64::new(0));
    Random::new(move || key.hash_one(count.fetch_add(1, Ordering::Relaxed)))
}

/// A unique name of this process: host name, process id, and random digits.
pub(crate) fn node(random: &Random) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.ok().map(|name| name.trim().to_owned());
    let host = host.filter(|name| !name.is_empty() && name.is_ascii() && name.len() <= 64);
    let host = host.unwrap_or_else(|| "relay".to_owned());
    format!("{host}-{}-{:04x}", process::id(), random.bits() & 0xffff)
}
