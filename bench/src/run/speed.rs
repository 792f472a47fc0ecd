//! Rate and latency of a service in all rounds.

use crate::{load::Tally, transact::Transacted};

use super::report::{Series, Unit};

/// Rate, median latency and tail latency of a service.
#[derive(Debug)]
pub(super) struct Speed {
    /// Responses per second.
    pub(super) rate: Series,
    /// The median latency.
    pub(super) median: Series,
    /// The 99th percentile of the latency.
    pub(super) tail: Series,
}

impl Speed {
    /// Three series without rounds.
    pub(super) fn new(name: &str) -> Self {
        Self {
            rate: Series::new(name, Unit::PerSecond),
            median: Series::new(format!("{name}: p50"), Unit::Millis),
            tail: Series::new(format!("{name}: p99"), Unit::Millis),
        }
    }

    /// Adds the result of a round.
    pub(super) fn push(&mut self, tally: &Tally) {
        let millis = |thousandths| tally.latency.quantile(thousandths).as_secs_f64() * 1e3;
        self.rate.push(tally.per_second());
        self.median.push(millis(500));
        self.tail.push(millis(990));
    }

    /// Adds the result of a round of transactions.
    pub(super) fn push_transacted(&mut self, transacted: &Transacted) {
        self.rate.push(transacted.rate);
        self.median.push(transacted.median);
        self.tail.push(transacted.tail);
    }

    /// The latencies.
    pub(super) fn latencies(&self) -> [Series; 2] {
        [self.median.clone(), self.tail.clone()]
    }
}
