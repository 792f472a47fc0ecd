//! Clocks and seeded randomness for tests.
//!
//! A test of expiry moves a [`ManualClock`] instead of waiting, so it takes no time and does not
//! depend on the load of the machine. The numbers of [`seeded_random`] are the same in every run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use hapax::{Clock, Random, Timestamp};

/// 1 January 2026, the start of every manual clock.
const START_MILLIS: i64 = 1_767_225_600_000;

/// A clock that moves only when a test moves it.
///
/// Clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// Creates a clock that shows 1 January 2026.
    pub fn new() -> Self {
        Self(Arc::new(AtomicI64::new(START_MILLIS)))
    }

    /// The clock for the code under test. It shows the same time.
    pub fn clock(&self) -> Clock {
        let manual = self.clone();
        Clock::new(move || manual.now())
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().after(by));
    }

    /// Moves the clock to `moment`, which may be in its past.
    pub fn set(&self, moment: Timestamp) {
        self.0.store(moment.as_millis(), Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

/// The clock of the system, for tests in which another process measures the time too.
pub fn system_clock() -> Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's wiring passes the time in"
    )]
    Clock::new(SystemTime::now)
}

/// Random numbers (`splitmix64`) that are the same for the same `seed`.
pub fn seeded_random(seed: u64) -> Random {
    let state = AtomicU64::new(seed);
    Random::new(move || {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_on_request() {
        let manual = ManualClock::new();
        let clock = manual.clock();
        let start = clock.now();
        assert_eq!(clock.now(), start);
        manual.advance(Duration::from_secs(2));
        assert_eq!(clock.now(), start.after(Duration::from_secs(2)));
        manual.set(start);
        assert_eq!(clock.now(), start);
    }

    #[test]
    fn the_same_seed_draws_the_same_numbers_and_another_seed_others() {
        let draw = |seed| {
            let random = seeded_random(seed);
            [random.bits(), random.bits(), random.bits()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_eq!(draw(0)[0], 0xe220_a839_7b1d_cdaf, "the published sequence");
    }
}
