//! Result of a run: the number of responses by status, and their latency.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use crate::histogram::Histogram;

use super::response::Head;

/// The responses of a run.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// The latency of the responses.
    pub(crate) latency: Histogram,
    /// The number of responses by status.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// The number of replayed responses.
    pub(crate) replayed: u64,
    from: Option<Instant>,
    to: Option<Instant>,
    last: Option<Instant>,
}

impl Tally {
    /// An empty tally.
    pub(crate) fn new() -> Self {
        Self {
            latency: Histogram::new(),
            statuses: BTreeMap::new(),
            replayed: 0,
            from: None,
            to: None,
            last: None,
        }
    }

    /// Sets the time at which counting starts, and at which it ends if that is known.
    pub(super) fn window(&mut self, from: Instant, to: Option<Instant>) {
        self.from = Some(self.from.map_or(from, |earlier| earlier.min(from)));
        self.to = self.to.max(to);
    }

    /// Counts a response.
    pub(super) fn record(&mut self, head: &Head, sent: Instant, received: Instant) {
        self.latency.record(received - sent);
        *self.statuses.entry(head.status).or_default() += 1;
        self.replayed += u64::from(head.replayed);
        self.last = self.last.max(Some(received));
    }

    /// Adds the tally of another thread.
    pub(super) fn merge(&mut self, other: &Self) {
        self.latency.merge(&other.latency);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.replayed += other.replayed;
        if let Some(from) = other.from {
            self.window(from, other.to);
        }
        self.last = self.last.max(other.last);
    }

    /// The number of responses.
    pub(crate) fn count(&self) -> u64 {
        self.latency.count()
    }

    /// The time during which responses were counted.
    pub(crate) fn elapsed(&self) -> Duration {
        match (self.from, self.to.or(self.last)) {
            (Some(from), Some(to)) => to.saturating_duration_since(from),
            _ => Duration::ZERO,
        }
    }

    /// Responses per second.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    pub(crate) fn per_second(&self) -> f64 {
        self.count() as f64 / self.elapsed().as_secs_f64().max(1e-9)
    }

    /// Fails unless every response had this status.
    pub(crate) fn only(&self, status: u16) -> anyhow::Result<()> {
        let wanted = self.statuses.get(&status).copied().unwrap_or(0);
        anyhow::ensure!(
            wanted == self.count() && wanted > 0,
            "expected only {status} responses, got {:?}",
            self.statuses
        );
        Ok(())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statuses: Vec<_> = self
            .statuses
            .iter()
            .map(|(s, n)| format!("{n} x {s}"))
            .collect();
        let at = |thousandths| self.latency.quantile(thousandths);
        writeln!(
            f,
            "{} responses ({}), {} replayed",
            self.count(),
            statuses.join(", "),
            self.replayed
        )?;
        writeln!(
            f,
            "{:.0} per second over {:.2?}",
            self.per_second(),
            self.elapsed()
        )?;
        writeln!(
            f,
            "p50 {:.1?}  p90 {:.1?}  p99 {:.1?}  p99.9 {:.1?}  max {:.1?}",
            at(500),
            at(900),
            at(990),
            at(999),
            self.latency.max()
        )
    }
}
