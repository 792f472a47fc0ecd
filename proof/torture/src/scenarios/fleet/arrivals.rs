//! Results of a run, and their checks.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    time::Duration,
};

use super::{
    Period,
    customer::{ClientLog, Kind},
};
use crate::checkers::over_budget;

/// The maximum difference between a client's clock and this clock.
const SLACK_MS: u64 = 10;
/// The ratio to the mean from which the requests of 100 ms are a wave.
const WAVE: f64 = 4.0;
/// The minimum share of a phase in which the process ran without delays.
const SOUND: f64 = 0.5;
/// A smaller number of requests in 100 ms is never a wave, because it may be chance.
const FEW: usize = 20;

/// The results of a run.
pub(super) struct Arrivals {
    outage: Period,
    /// Requests per second: new orders, failed orders that are sent again, retries.
    seconds: Vec<[usize; 3]>,
    /// All requests per 100 ms.
    tenths: Vec<usize>,
    delays: Vec<Period>,
    orders: usize,
    failed: usize,
    missing: Vec<String>,
    wrong: Vec<String>,
}

impl Arrivals {
    /// Compares the requests of the clients with the orders of the shop.
    pub(super) fn of(
        outage: Period,
        logs: &[ClientLog],
        stored: &BTreeMap<String, usize>,
        delays: Vec<Period>,
    ) -> Self {
        let (mut seconds, mut tenths) = (Vec::new(), Vec::new());
        let (mut missing, mut wrong) = (Vec::new(), Vec::new());
        let placed = || logs.iter().flat_map(|log| &log.orders);
        for (at, kind) in logs.iter().flat_map(|log| &log.sent) {
            let second = index(*at, 1_000);
            seconds.resize(seconds.len().max(second + 1), [0; 3]);
            seconds[second][*kind as usize] += 1;
            let tenth = index(*at, 100);
            tenths.resize(tenths.len().max(tenth + 1), 0);
            tenths[tenth] += 1;
        }
        for order in placed() {
            match stored.get(order) {
                None => missing.push(order.clone()),
                Some(1) => {}
                Some(often) => wrong.push(format!("order {order} exists {often} times")),
            }
        }
        let orders = placed().count();
        if stored.len() > orders {
            wrong.push(format!(
                "{} orders exist that no client placed",
                stored.len() - orders
            ));
        }
        for (number, log) in logs.iter().enumerate() {
            wrong.extend(log.unexpected.iter().cloned());
            let mut sent = log.sent.clone();
            sent.sort_by_key(|(at, kind)| (*at, *kind == Kind::Retry));
            let sent = sent
                .iter()
                .map(|(at, kind)| (millis(*at), *kind == Kind::Retry));
            let over = over_budget(&sent.collect::<Vec<_>>(), SLACK_MS);
            wrong.extend(over.map(|what| format!("client {number}: {what}")));
        }
        let failed = logs.iter().map(|log| log.failed).sum();
        Self {
            outage,
            seconds,
            tenths,
            delays,
            orders,
            failed,
            missing,
            wrong,
        }
    }

    /// Returns the checks that failed.
    pub(super) fn wrong(&self) -> Vec<String> {
        let mut wrong = self.wrong.clone();
        if !self.missing.is_empty() {
            wrong.push(format!(
                "{} orders are missing: {:?}",
                self.missing.len(),
                self.missing
            ));
        }
        for (when, from, to) in self.phases() {
            let (mean, peak, sound) = self.arrivals(from, to);
            if sound < SOUND {
                wrong.push(format!(
                    "{when}: the process was delayed, so waves cannot be detected"
                ));
            }
            if peak > FEW && real(peak) > WAVE * mean {
                wrong.push(format!(
                    "a wave {when}: {peak} in 100 ms, and the mean is {mean:.0}"
                ));
            }
        }
        if self.failed == 0 || self.seconds.iter().all(|second| second[2] == 0) {
            wrong.push("the outage had no effect: the run proves nothing".to_owned());
        }
        wrong
    }

    fn phases(&self) -> [(&'static str, Duration, Duration); 3] {
        let Period { from, to } = self.outage;
        let after = to + Duration::from_secs(5);
        [
            ("before", Duration::ZERO, from),
            ("while it is down", from, to),
            ("when it is back", to, after),
        ]
    }

    /// Returns the mean number of requests per 100 ms between two points in time, the maximum over
    /// the parts without delays, and the share of these parts.
    fn arrivals(&self, from: Duration, to: Duration) -> (f64, usize, f64) {
        let index = |at: Duration| index(at, 100);
        let end = index(to).min(self.tenths.len());
        let span = (index(from) + 1).min(end)..end;
        // Delayed requests are sent together with those that are on time.
        let late = |tenth: &usize| {
            let mut delays = self.delays.iter();
            delays.any(|it| (index(it.from)..=index(it.to) + 1).contains(tenth))
        };
        let sent = |tenth: usize| self.tenths[tenth];
        let sum: usize = span.clone().map(sent).sum();
        let sound: Vec<_> = span.clone().filter(|it| !late(it)).map(sent).collect();
        let count = real(span.len().max(1));
        let peak = sound.iter().copied().max().unwrap_or_default();
        (real(sum) / count, peak, real(sound.len()) / count)
    }
}

/// The number of the interval of so many milliseconds.
fn index(at: Duration, interval: u64) -> usize {
    usize::try_from(millis(at) / interval).unwrap_or(usize::MAX)
}

fn millis(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn real(count: usize) -> f64 {
    count as f64
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Period { from, to } = self.outage;
        writeln!(f, "second,new,later,retries")?;
        for (second, [new, later, retries]) in self.seconds.iter().enumerate() {
            let at = Duration::from_secs(second as u64);
            let down = if at >= from && at < to { "  down" } else { "" };
            writeln!(f, "{second},{new},{later},{retries}{down}")?;
        }
        let mut phases = String::new();
        for (when, from, to) in self.phases() {
            let (mean, peak, _) = self.arrivals(from, to);
            writeln!(phases, "{when}: {mean:.1} in 100 ms, at most {peak}")?;
        }
        let sums = self.seconds.iter().fold([0; 3], |sum, it| {
            [sum[0] + it[0], sum[1] + it[1], sum[2] + it[2]]
        });
        let existing = self.orders - self.missing.len();
        write!(
            f,
            "{phases}down for {:.1} s; {} operations failed and were done later\n\
             {} first attempts of new orders, {} of old ones, {} retries\n\
             {existing} of {} orders exist once",
            to.saturating_sub(from).as_secs_f64(),
            self.failed,
            sums[0],
            sums[1],
            sums[2],
            self.orders,
        )
    }
}
