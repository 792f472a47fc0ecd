//! Retry budget checker: retries of a client add no more than the budget to a receiver's load.

use std::collections::{HashMap, HashSet};

use super::{Violation, violated};
use crate::{
    artifacts::{Artifacts, Counted},
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
    let mut by_client: HashMap<&str, Vec<&Counted>> = HashMap::new();
    for request in &artifacts.counted {
        by_client.entry(&request.client).or_default().push(request);
    }
    for (client, requests) in by_client {
        found.extend(too_many(client, &requests));
    }
    found.extend(too_early(artifacts));
    found
}

/// How many attempts were retries.
pub(crate) fn retries(artifacts: &Artifacts) -> usize {
    let ids: HashSet<_> = artifacts.counted.iter().map(|it| &it.id).collect();
    artifacts.counted.len() - ids.len()
}

fn too_many(client: &str, requests: &[&Counted]) -> Option<Violation> {
    let mut seen = HashSet::new();
    let sent = requests
        .iter()
        .map(|it| (it.at / MILLISECOND, !seen.insert(&it.id)));
    let over = over_budget(&sent.collect::<Vec<_>>(), BELATED)?;
    Some(violated(12, format!("{client}: {over}")))
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
/// time on disk, so a kill does not excuse it.
fn too_early(artifacts: &Artifacts) -> Vec<Violation> {
    let mut last: HashMap<&str, &Counted> = HashMap::new();
    let mut found = Vec::new();
    for request in &artifacts.counted {
        let Some(before) = last.insert(&request.id, request) else {
            continue;
        };
        let wait = before.retry_after.unwrap_or_default() * SECOND;
        let has_fault = artifacts.faults.iter().any(|fault| {
            fault.injection.contains(COUNTER)
                && fault.from <= request.at
                && fault.until >= before.at
        });
        if request.at + EARLY < before.at + wait && !has_fault {
            let waited = (request.at - before.at) / 1_000_000;
            let what = format!(
                "{} retried after {waited} ms, not {wait} ns",
                request.client
            );
            found.push(violated(12, what));
        }
    }
    found
}
