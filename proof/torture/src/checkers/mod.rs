//! Checkers: the invariants that must hold after a run, with any faults.
//!
//! A checker is a pure function from artifacts to violations, each with the number of the invariant
//! that is broken. There is one checker per noun.

mod keys;
mod effects;
mod notes;
mod purges;
mod conflicts;
mod events;
mod duplicates;
mod money;
mod fences;
mod listed;
mod bounds;
mod floods;
mod budget;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::artifacts::Artifacts;
pub(crate) use budget::{over_budget, retries};
pub(crate) use duplicates::causes;

/// The invariants, by number.
pub(crate) const INVARIANTS: [&str; 14] = [
    "at most one committed effect per (tenant, operation, key) and purge of it",
    "an acknowledged 2xx is present after any recovery; a definite error left nothing",
    "every completed replay is byte-identical in status, stored headers and body; none outlives a purge",
    "another fingerprint never executes, and is a mismatch while the first request runs",
    "an effect exists exactly when its outbox row does",
    "every committed event is delivered or dead with its attempts recorded; nothing unexpected is ever delivered",
    "every duplicate delivery is explained by a logged fault",
    "one inbox effect per source and message id, however many deliveries",
    "no inversion among first deliveries of one ordering key",
    "a fenced owner commits nothing",
    "money: captured - refunded = shipped; at most one net capture per checkout; every saga ends",
    "retries stay inside their budget in every window; no attempt earlier than Retry-After; no redirect is followed",
    "after the faults stop, the backlog drains in bounded time and every operation gets a response; during floods others are served",
    "no table, WAL or memory grows without bound",
];

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The number of the invariant, from 1.
    pub(crate) of: usize,
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {}: {}", self.of, self.what)
    }
}

/// Everything that is wrong with a run.
pub(crate) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let checkers: [fn(&Artifacts) -> Vec<Violation>; 13] = [
        keys::violations,
        effects::violations,
        notes::violations,
        purges::violations,
        conflicts::violations,
        events::violations,
        duplicates::violations,
        money::violations,
        |artifacts| fences::violations(artifacts).into_iter().collect(),
        listed::violations,
        bounds::violations,
        floods::violations,
        budget::violations,
    ];
    checkers
        .into_iter()
        .flat_map(|check| check(artifacts))
        .collect()
}

fn violated(of: usize, what: impl Into<String>) -> Violation {
    Violation {
        of,
        what: what.into(),
    }
}
