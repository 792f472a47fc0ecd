//! The numbers of a load, as a table for a page.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    time::Duration,
};

use super::{
    nemesis::{Faults, Injection},
    traffic::FAULTS,
};
use crate::{
    gateway::Store,
    ledger::{Results, Seen},
    upstream::Entry,
};

/// The numbers of a load.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) on: Store,
    pub(super) gateways: usize,
    pub(super) elapsed: Duration,
    pub(super) faults: Faults,
    /// The faults that requests have switched on in the service, and how often.
    pub(super) lies: BTreeMap<String, usize>,
    /// The results of the attempts, without those after the faults.
    pub(super) results: Results,
    pub(super) keys: Keys,
    /// The violations of the invariant.
    pub(super) violations: Vec<String>,
}

/// The keys at the end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Keys {
    pub(super) answered: usize,
    /// The keys with more than one success, each with the bytes of the first one.
    pub(super) replayed: usize,
    /// Unknown outcomes of keys on which the service has acted, and of the others.
    pub(super) unknown_acted: usize,
    pub(super) unknown_idle: usize,
    /// The unknown outcomes that were decided afterwards, as operators do.
    pub(super) decided: usize,
    /// The lines of the ledger.
    pub(super) lines: usize,
}

impl Keys {
    /// Counts the keys of a history, whose last attempts have decided.
    pub(super) fn of(history: &BTreeMap<String, Vec<Seen>>, ledger: &[Entry]) -> Self {
        let acted: HashSet<&str> = ledger.iter().map(|line| line.key.as_str()).collect();
        let mut keys = Self {
            lines: ledger.len(),
            ..Self::default()
        };
        for (key, seen) in history {
            let successes = seen.iter().filter(|it| it.is_success()).count();
            keys.answered += usize::from(successes > 0);
            keys.replayed += usize::from(successes > 1);
            if seen.last().is_some_and(Seen::is_unknown) {
                let has_acted = acted.contains(key.as_str());
                keys.unknown_acted += usize::from(has_acted);
                keys.unknown_idle += usize::from(!has_acted);
            }
        }
        keys
    }
}

impl Report {
    /// Fails with every violation; or if a kind of fault took effect too rarely, or if the clients saw
    /// too little: such a run proves nothing.
    pub(super) fn check(&self) {
        let (faults, results) = (&self.faults, self.results);
        let wrong = self.violations.join("\n");
        assert!(self.violations.is_empty(), "{wrong}\n{self}");
        for injection in Injection::ALL {
            let count = faults.took_effect.get(&injection).copied();
            let is_enough = count.unwrap_or_default() * 2 >= faults.rounds;
            assert!(
                is_enough,
                "{injection:?} took effect {count:?} times\n{self}"
            );
        }
        for fault in FAULTS {
            let name = fault.split('=').next().unwrap_or(fault);
            let count = self.lies.get(name).copied().unwrap_or_default();
            assert!(count >= faults.rounds, "{fault}: {count} times\n{self}");
        }
        let caused = faults.rounds * Injection::ALL.len();
        let unknown = results.cut + results.late + results.undecided;
        assert!(results.answered >= 2 * caused, "few answers\n{self}");
        assert!(unknown >= caused / 4, "few unknown outcomes\n{self}");
        assert!(results.not_sent >= caused / 8, "little was refused\n{self}");
        assert!(results.lost >= caused / 14, "few lost responses\n{self}");
        assert!(self.keys.replayed > 0, "no answer was replayed\n{self}");
        let unknown = self.keys.unknown_acted.min(self.keys.unknown_idle);
        assert!(unknown > 0, "one kind of unknown outcome only\n{self}");
    }

    fn rows(&self) -> Vec<(String, usize)> {
        let (results, keys) = (self.results, self.keys);
        let row = |name: &str, count: usize| (name.to_owned(), count);
        let mut rows = vec![row("kills of a gateway", self.faults.kills)];
        for (injection, count) in &self.faults.took_effect {
            rows.push((injection.name(self.on), *count));
        }
        for (fault, count) in &self.lies {
            rows.push((format!("the service: {fault}"), *count));
        }
        rows.extend([
            row("attempts", results.attempts()),
            row("attempts answered", results.answered),
            row("exchanges that failed (502)", results.cut),
            row("exchanges that were late (504)", results.late),
            row("nothing sent (503)", results.not_sent),
            row("connections to a gateway lost", results.lost),
            row("keys answered", keys.answered),
            row("keys answered more than once, alike", keys.replayed),
            row(
                "outcomes unknown, the service has acted",
                keys.unknown_acted,
            ),
            row("outcomes unknown, it has not", keys.unknown_idle),
            row("unknown outcomes decided", keys.decided),
            row("lines in the ledger", keys.lines),
            row("violations", self.violations.len()),
        ]);
        rows
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (on, gateways, seconds) = (self.on, self.gateways, self.elapsed.as_secs());
        writeln!(f, "| {on:?}, {gateways} gateway(s), {seconds} s | |")?;
        writeln!(f, "|---|---:|")?;
        for (name, count) in self.rows() {
            writeln!(f, "| {name} | {count} |")?;
        }
        Ok(())
    }
}
