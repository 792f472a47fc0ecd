//! Checker of a run: finds lost and unexpected events, and explains duplicates.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    time::Duration,
};

use super::{Arrival, broker_rows::BrokerRows, relays::Fault, writers::WRITERS};
use crate::report;

/// A relay has recorded an event as delivered at most this long after the event arrived: the
/// response has to reach the relay, and the settlement has to reach the disk.
const UNSETTLED: Duration = Duration::from_secs(5);

/// The result of a run.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    written: usize,
    rolled_back: usize,
    has_hook: bool,
    delivered: usize,
    lost: usize,
    unexpected: usize,
    inversions: usize,
    duplicates: usize,
    /// Duplicates that a crash explains: the store has an interrupted attempt, and a fault happened
    /// between the two arrivals.
    by_crash: usize,
    /// Duplicates that a lost response explains: the relay has recorded an attempt without a
    /// response.
    by_lost_response: usize,
    interrupted: u64,
    faults: BTreeMap<&'static str, usize>,
    takeovers: i64,
    dead: i64,
    omitted: u64,
    /// Per consumer: the effects, the missing ones, and those that happened twice or should not
    /// exist.
    effects: BTreeMap<String, [usize; 3]>,
}

impl Verdict {
    pub(super) fn of(
        rows: &BrokerRows,
        ledger: &[Arrival],
        faults: &[Fault],
        sinks: &[String],
        omitted: u64,
    ) -> Self {
        let mut verdict = Self {
            written: rows.written.len(),
            rolled_back: rows.rolled_back.len(),
            has_hook: sinks.iter().any(|sink| sink == "webhook"),
            interrupted: rows.interrupted.values().sum(),
            takeovers: rows.takeovers,
            dead: rows.dead,
            omitted,
            ..Self::default()
        };
        for fault in faults {
            *verdict.faults.entry(fault.kind).or_default() += 1;
        }
        if verdict.has_hook {
            verdict.compare(rows, ledger, faults);
        }
        for (consumer, counts) in &rows.effects {
            let missing = |nonce: &&String| !counts.contains_key(*nonce);
            let wrong =
                |(nonce, count): &(&String, &u64)| **count != 1 || !rows.written.contains(*nonce);
            let effects = [
                counts.len(),
                rows.written.iter().filter(missing).count(),
                counts.iter().filter(wrong).count(),
            ];
            verdict.effects.insert(consumer.clone(), effects);
        }
        verdict
    }

    fn compare(&mut self, rows: &BrokerRows, ledger: &[Arrival], faults: &[Fault]) {
        let mut first = HashMap::<&str, &Arrival>::new();
        let mut highest = HashMap::<&str, i64>::new();
        let mut again = HashMap::<&str, u64>::new();
        let mut unexpected = HashSet::new();
        for arrival in ledger {
            if !rows.written.contains(&arrival.nonce) {
                unexpected.insert(&arrival.nonce);
                continue;
            }
            if let Some(first) = first.get(&*arrival.id) {
                let times = again.entry(&arrival.id).or_default();
                *times += 1;
                self.explain(rows, faults, first, arrival, *times);
                continue;
            }
            first.insert(&arrival.id, arrival);
            let highest = highest.entry(&arrival.key).or_default();
            // The numbers of a key have no gaps, so each number must be one more than the highest
            // one.
            self.inversions += usize::from(arrival.number != *highest + 1);
            *highest = arrival.number.max(*highest);
        }
        self.delivered = first.len();
        self.lost = rows.misses(ledger);
        self.unexpected = unexpected.len() + (first.len() + self.lost).abs_diff(self.written);
    }

    /// Finds the reason why an event arrived again.
    fn explain(
        &mut self,
        rows: &BrokerRows,
        faults: &[Fault],
        first: &Arrival,
        next: &Arrival,
        times: u64,
    ) {
        self.duplicates += 1;
        let between = |fault: &Fault| first.at < fault.until + UNSETTLED && fault.from < next.at;
        let unseen = rows.interrupted.get(&next.id).copied().unwrap_or_default();
        let failed = rows.failed.get(&next.id).copied().unwrap_or_default();
        if times <= unseen && faults.iter().any(between) {
            self.by_crash += 1;
        } else if times <= unseen + failed {
            self.by_lost_response += 1;
        }
    }

    fn unexplained(&self) -> usize {
        self.duplicates - self.by_crash - self.by_lost_response
    }

    /// Whether a fault interrupted a delivery.
    fn is_known(&self) -> bool {
        self.faults.contains_key("KILL") && (!self.has_hook || self.interrupted > 0)
    }

    /// The verdict as that of a run.
    pub(super) fn outcome(&self) -> report::Verdict {
        match (self.is_known(), self.holds()) {
            (false, _) => report::Verdict::Unknown,
            (true, true) => report::Verdict::Holds,
            (true, false) => report::Verdict::Violated,
        }
    }

    fn holds(&self) -> bool {
        let hook = self.lost + self.unexpected + self.inversions + self.unexplained();
        let effects = self
            .effects
            .values()
            .map(|[_, missing, wrong]| missing + wrong);
        self.is_known() && self.written > 0 && hook + effects.sum::<usize>() == 0 && self.dead == 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "verdict {}", self.outcome().name())?;
        let Self {
            written,
            rolled_back,
            ..
        } = self;
        writeln!(
            f,
            "  {WRITERS} writers and a long one: written {written}, rolled back {rolled_back}"
        )?;
        let faults = self
            .faults
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"));
        let faults: Vec<_> = faults.collect();
        let (takeovers, interrupted) = (self.takeovers, self.interrupted);
        writeln!(
            f,
            "  relays: {}, takeovers {takeovers}, offers interrupted {interrupted}",
            faults.join(", ")
        )?;
        if self.has_hook {
            let Self {
                delivered,
                lost,
                unexpected,
                inversions,
                duplicates,
                ..
            } = self;
            let (crash, response, rest) =
                (self.by_crash, self.by_lost_response, self.unexplained());
            writeln!(
                f,
                "  webhook: delivered {delivered}, lost {lost}, unexpected {unexpected}, \
                 inversions {inversions}, duplicates {duplicates} (by a crash {crash}, by a lost \
                 response {response}, unexplained {rest})"
            )?;
        }
        for (consumer, [count, missing, wrong]) in &self.effects {
            writeln!(
                f,
                "  {consumer}: effects {count}, missing {missing}, not exactly one {wrong}"
            )?;
        }
        write!(
            f,
            "  acknowledgements omitted by consumers {}, dead letters {}",
            self.omitted, self.dead
        )
    }
}
