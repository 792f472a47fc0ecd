//! Retry budget checker: retries of a client add no more than the budget to a receiver's load.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Violation, violated};
use crate::{
    artifacts::{Artifacts, Asked},
    deployment::COUNTER,
};

const SECOND: u64 = 1_000_000_000;
/// The contract's budget: in every window of ten seconds, a tenth of the first attempts, half a
/// retry a second, and five at once.
const WINDOW: u64 = 10 * SECOND;
const PER_REQUEST: f64 = 0.1;
const PER_SECOND: f64 = 0.5;
const AT_ONCE: f64 = 5.0;
/// Allowance between sending and arrival: the receiver may be killed, and the machine is busy.
const BELATED: u64 = 3 * SECOND;
/// Allowed difference between the clocks at both ends of a wait.
const EARLY: u64 = SECOND / 20;

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut by_who: HashMap<&str, Vec<&Asked>> = HashMap::new();
    for asked in &artifacts.asked {
        by_who.entry(&asked.who).or_default().push(asked);
    }
    for (who, asked) in by_who {
        found.extend(too_many(who, &asked));
    }
    found.extend(too_early(artifacts));
    found
}

/// How many attempts were retries.
pub(crate) fn retries(artifacts: &Artifacts) -> usize {
    let ids: HashSet<_> = artifacts.asked.iter().map(|it| &it.id).collect();
    artifacts.asked.len() - ids.len()
}

fn too_many(who: &str, asked: &[&Asked]) -> Option<Violation> {
    let mut seen = HashSet::new();
    let (mut retries, mut firsts) = (VecDeque::new(), VecDeque::new());
    for it in asked {
        if seen.insert(&it.id) {
            firsts.push_back(it.at);
            continue;
        }
        retries.push_back(it.at);
        let from = it.at.saturating_sub(WINDOW);
        while retries.front().is_some_and(|at| *at < from) {
            retries.pop_front();
        }
        while firsts.front().is_some_and(|at| *at + BELATED < from) {
            firsts.pop_front();
        }
        #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
        let (made, first) = (retries.len() as f64, firsts.len() as f64);
        #[expect(clippy::cast_precision_loss, reason = "a window is short")]
        let seconds = (WINDOW + BELATED) as f64 / SECOND as f64;
        let most = first.mul_add(PER_REQUEST, PER_SECOND.mul_add(seconds, AT_ONCE));
        if made > most.ceil() {
            let what =
                format!("{who} retried {made} times within ten seconds, of {first} first attempts");
            return Some(violated(12, what));
        }
    }
    None
}

/// A retry that arrived before the receiver's `Retry-After` had passed. The receiver keeps that
/// time on disk, so a kill is no excuse.
fn too_early(artifacts: &Artifacts) -> Vec<Violation> {
    let mut last: HashMap<&str, &Asked> = HashMap::new();
    let mut found = Vec::new();
    for asked in &artifacts.asked {
        let Some(before) = last.insert(&asked.id, asked) else {
            continue;
        };
        let wait = before.retry_after.unwrap_or_default() * SECOND;
        let is_unheard = artifacts.faults.iter().any(|fault| {
            fault.how.contains(COUNTER) && fault.from <= asked.at && fault.until >= before.at
        });
        if asked.at + EARLY < before.at + wait && !is_unheard {
            let waited = (asked.at - before.at) / 1_000_000;
            let what = format!("{} came back after {waited} ms, not {wait} ns", asked.who);
            found.push(violated(12, what));
        }
    }
    found
}
