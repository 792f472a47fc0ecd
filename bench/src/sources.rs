//! Where time and randomness come from: this is where they are passed in.

use std::time::SystemTime;

use hapax::{Clock, Random};

/// The machine's clock.
pub(crate) fn clock() -> Clock {
    Clock::new(now)
}

/// Randomness that is quick and not secret.
pub(crate) fn random() -> Random {
    Random::new(bits)
}

/// The time.
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
