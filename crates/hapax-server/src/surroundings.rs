//! What is passed in to everything else: the time, chance, and the names of this machine.

use std::{
    hash::{BuildHasher as _, RandomState},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

pub(crate) use hapax::telemetry::error_chain;
use hapax::{Clock, Random};

/// The time of day.
#[expect(
    clippy::disallowed_methods,
    reason = "this is where time is passed in from"
)]
pub(crate) fn clock() -> Clock {
    Clock::new(SystemTime::now)
}

/// The time of day, to the nanosecond.
#[expect(
    clippy::disallowed_methods,
    reason = "this is where time is passed in from"
)]
pub(crate) fn time() -> fn() -> SystemTime {
    SystemTime::now
}

/// A keyed hash of a counter: nobody can tell the next number who does not know the key.
pub(crate) fn random() -> Random {
    let (key, count) = (RandomState::new(), AtomicU64::new(0));
    Random::new(move || key.hash_one(count.fetch_add(1, Ordering::Relaxed)))
}

/// A name for this process that no other has: its machine, its number, and a bit of chance.
pub(crate) fn node(random: &Random) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.ok().map(|name| name.trim().to_owned());
    let host = host.filter(|name| !name.is_empty() && name.is_ascii() && name.len() <= 64);
    let host = host.unwrap_or_else(|| "relay".to_owned());
    format!("{host}-{}-{:04x}", process::id(), random.bits() & 0xffff)
}
