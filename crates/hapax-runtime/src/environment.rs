//! Environment of a process: its clock and its random numbers.

use std::time::SystemTime;

use hapax::{Clock, Random};

/// The wall clock.
pub fn clock() -> Clock {
    Clock::system()
}

/// The function that reads the wall clock, for what starts before the clock is passed in.
#[expect(
    clippy::disallowed_methods,
    reason = "this is where time is passed in from"
)]
pub fn time() -> fn() -> SystemTime {
    SystemTime::now
}

/// Random numbers, unpredictable from outside.
pub fn random() -> Random {
    Random::system()
}
