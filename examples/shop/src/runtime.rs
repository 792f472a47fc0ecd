//! The environment of all parts of the shop: clock, randomness, failpoints and tracing.
//!
//! Other modules are given these; they read neither the time nor random numbers of the process. The
//! exporter of traces, which starts before them, has a separate clock.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use hapax::{Clock, Random, failpoint::Failpoints, trace::Traces};

use crate::failpoint;

/// The environment of all parts: clock, randomness, failpoints, tracing.
pub(crate) struct Runtime {
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) failpoints: Failpoints,
    pub(crate) traces: Traces,
}

impl Runtime {
    /// Returns the environment of this process; `sample` is the share of its traces that are
    /// recorded, and without it nothing is traced.
    pub(crate) fn of_process(sample: Option<f64>) -> Self {
        let random = random();
        Self {
            clock: clock(),
            failpoints: failpoint::from_environment(),
            traces: match sample {
                Some(sample) => Traces::sampled(random.clone(), sample),
                None => Traces::off(),
            },
            random,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the process is read only here"
)]
fn clock() -> Clock {
    Clock::new(SystemTime::now)
}

/// Returns a keyed hash of a counter, so that no client can predict the next number.
fn random() -> Random {
    let (key, count) = (RandomState::new(), AtomicU64::new(0));
    Random::new(move || key.hash_one(count.fetch_add(1, Ordering::Relaxed)))
}
