//! The sources of time and randomness that are passed to everything else.

use std::time::SystemTime;

use hapax::{Clock, Random};

/// The machine's clock.
pub(crate) fn clock() -> Clock {
    Clock::new(now)
}

/// Fast randomness, not suitable for secrets.
pub(crate) fn random() -> Random {
    Random::new(bits)
}

/// The current time.
#[expect(
    clippy::disallowed_methods,
    reason = "this is where time is passed in from"
)]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// Random bits.
#[expect(
    clippy::disallowed_methods,
    reason = "this is where randomness is passed in from"
)]
pub(crate) fn bits() -> u64 {
    fastrand::u64(..)
}
