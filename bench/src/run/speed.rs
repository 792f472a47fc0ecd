//! How fast a service answered, round by round.

use crate::load::Tally;

use super::report::{Series, Unit};

/// The rate, the median and the tail of one service.
#[derive(Debug)]
pub(super) struct Speed {
    /// Answers per second.
    pub(super) rate: Series,
    /// What half of the answers took at most.
    pub(super) median: Series,
    /// What 99 of 100 answers took at most.
    pub(super) tail: Series,
}

impl Speed {
    /// No rounds yet.
    pub(super) fn new(name: &str) -> Self {
        Self {
            rate: Series::new(name, Unit::PerSecond),
            median: Series::new(format!("{name}: p50"), Unit::Millis),
            tail: Series::new(format!("{name}: p99"), Unit::Millis),
        }
    }

    /// Adds what came of a round.
    pub(super) fn push(&mut self, tally: &Tally) {
        let millis = |thousandths| tally.latency.quantile(thousandths).as_secs_f64() * 1e3;
        self.rate.push(tally.per_second());
        self.median.push(millis(500));
        self.tail.push(millis(990));
    }

    /// Its latencies, for the end of a table.
    pub(super) fn latencies(&self) -> [Series; 2] {
        [self.median.clone(), self.tail.clone()]
    }
}
