//! Histogram of durations in nanoseconds, with three significant digits.

use std::time::Duration;

/// Counts of durations. A quantile is at most 0.1 % too high.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    durations: hdrhistogram::Histogram<u64>,
    /// The longest duration, exactly.
    max: Duration,
}

impl Histogram {
    /// An empty histogram.
    pub(crate) fn new() -> Self {
        let durations = hdrhistogram::Histogram::new(3);
        Self {
            durations: durations.expect("three digits are supported"),
            max: Duration::ZERO,
        }
    }

    /// Counts one duration.
    pub(crate) fn record(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let recorded = self.durations.record(nanos);
        recorded.expect("the histogram grows");
        self.max = self.max.max(took);
    }

    /// Adds the counts of another histogram.
    pub(crate) fn merge(&mut self, other: &Self) {
        let added = self.durations.add(&other.durations);
        added.expect("the histogram grows");
        self.max = self.max.max(other.max);
    }

    /// The number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.durations.len()
    }

    /// The duration that `thousandths` of 1,000 values did not exceed; zero if the histogram is
    /// empty.
    pub(crate) fn quantile(&self, thousandths: u64) -> Duration {
        let rank = (self.count() * thousandths).div_ceil(1000).max(1);
        let mut seen = 0;
        let mut recorded = self.durations.iter_recorded();
        let found = recorded.find(|it| {
            seen += it.count_at_value();
            seen >= rank
        });
        let nanos = found.map_or(0, |it| it.value_iterated_to());
        Duration::from_nanos(nanos).min(self.max)
    }

    /// The longest duration.
    pub(crate) fn max(&self) -> Duration {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_thousand_steps_are_the_steps() {
        let mut histogram = Histogram::new();
        for micros in 1..=1_000 {
            histogram.record(Duration::from_micros(micros));
        }
        assert_eq!(histogram.count(), 1_000);
        for thousandths in [1, 500, 990, 999] {
            let truth = Duration::from_micros(thousandths).as_secs_f64();
            let got = histogram.quantile(thousandths).as_secs_f64();
            assert!(
                (truth..=truth * 1.008).contains(&got),
                "{thousandths}: {got}"
            );
        }
        assert_eq!(histogram.quantile(1_000), histogram.max());
    }

    #[test]
    fn what_two_threads_counted_is_one_histogram() {
        let (mut one, mut other) = (Histogram::new(), Histogram::new());
        one.record(Duration::from_millis(1));
        other.record(Duration::from_millis(9));
        one.merge(&other);
        assert_eq!((one.count(), one.max()), (2, Duration::from_millis(9)));
    }

    #[test]
    fn a_histogram_of_nothing_answers_zero() {
        assert_eq!(Histogram::new().quantile(500), Duration::ZERO);
    }
}
