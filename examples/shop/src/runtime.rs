//! The environment of all parts of the shop: clock, randomness, failpoints and tracing.
//!
//! Other modules are given these; they read neither the time nor random numbers of the process. The
//! exporter of traces, which starts before them, has a separate clock.

use std::ffi::OsString;

use hapax::{Clock, Random, failpoint::Failpoints, trace::Traces};
use hapax_runtime::{environment, failpoint};

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
    pub(crate) fn of_process(variables: &[(OsString, OsString)], sample: Option<f64>) -> Self {
        let random = environment::random();
        Self {
            clock: environment::clock(),
            failpoints: failpoint::from_environment(variables),
            traces: match sample {
                Some(sample) => Traces::sampled(random.clone(), sample),
                None => Traces::off(),
            },
            random,
        }
    }
}
