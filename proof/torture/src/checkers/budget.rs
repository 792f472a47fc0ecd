//! Retry budget checker: retries of a client add no more than the budget to a receiver's load.

use std::collections::{HashMap, HashSet};

use super::{Violation, violated};
use crate::{
    artifacts::{Artifacts, Asked},
    deployment::COUNTER,
};

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
/// Allowance between sending and arrival, in milliseconds: the receiver may be killed, and the
/// machine is busy.
const BELATED: u64 = 3_000;
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
    let sent = asked
        .iter()
        .map(|it| (it.at / MILLISECOND, !seen.insert(&it.id)));
    let over = over_budget(&sent.collect::<Vec<_>>(), BELATED)?;
    Some(violated(12, format!("{who}: {over}")))
}

/// The first window with more retries than the budget allows: five at once, half a retry a second,
/// and a tenth for each first attempt; from ten seconds on that is a tenth and one retry a second.
///
/// Each attempt is a time in milliseconds and whether it is a retry, in the order of time. Times
/// may be off by `slack` milliseconds.
pub(crate) fn over_budget(sent: &[(u64, bool)], slack: u64) -> Option<String> {
    for (begin, (from, _)) in sent
        .iter()
        .enumerate()
        .filter(|(_, (_, is_retry))| *is_retry)
    {
        // A first attempt at the same time may have been recorded slightly earlier.
        let before = sent[..begin].iter().rev();
        let before = before.take_while(|(at, _)| at + slack >= *from);
        let mut firsts = before.filter(|(_, is_retry)| !is_retry).count() as u64;
        let mut retries = 0;
        for (at, is_retry) in &sent[begin..] {
            if !is_retry {
                firsts += 1;
                continue;
            }
            retries += 1;
            let width = at - from + slack;
            let bound = (5_000 + firsts * 100 + width / 2).min(firsts * 100 + width.max(10_000));
            if retries * 1_000 > bound {
                let what = format!("{retries} retries of {firsts} in {width} ms from {from} ms");
                return Some(what);
            }
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
