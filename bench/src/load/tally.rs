//! What came of a run: how many answers, of which kind, how fast.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use crate::histogram::Histogram;

use super::response::Head;

/// The answers of a run.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// How long answers took.
    pub(crate) latency: Histogram,
    /// How many answers had each status.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// How many said that they were replayed.
    pub(crate) replayed: u64,
    from: Option<Instant>,
    to: Option<Instant>,
    last: Option<Instant>,
}

impl Tally {
    /// A tally of nothing.
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

    /// Says when counting starts, and when it ends if that is known beforehand.
    pub(super) fn window(&mut self, from: Instant, to: Option<Instant>) {
        self.from = Some(self.from.map_or(from, |earlier| earlier.min(from)));
        self.to = self.to.max(to);
    }

    /// Counts an answer.
    pub(super) fn record(&mut self, head: &Head, sent: Instant, received: Instant) {
        self.latency.record(received - sent);
        *self.statuses.entry(head.status).or_default() += 1;
        self.replayed += u64::from(head.replayed);
        self.last = self.last.max(Some(received));
    }

    /// Counts what another thread counted.
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

    /// How many answers were counted.
    pub(crate) fn count(&self) -> u64 {
        self.latency.count()
    }

    /// How long was counted.
    pub(crate) fn elapsed(&self) -> Duration {
        match (self.from, self.to.or(self.last)) {
            (Some(from), Some(to)) => to.saturating_duration_since(from),
            _ => Duration::ZERO,
        }
    }

    /// Answers per second.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    pub(crate) fn per_second(&self) -> f64 {
        self.count() as f64 / self.elapsed().as_secs_f64().max(1e-9)
    }

    /// Fails unless every answer had this status.
    pub(crate) fn only(&self, status: u16) -> anyhow::Result<()> {
        let wanted = self.statuses.get(&status).copied().unwrap_or(0);
        anyhow::ensure!(
            wanted == self.count() && wanted > 0,
            "every answer should be {status}, but they were {:?}",
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
            "{} answers ({}), {} replayed",
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
