//! Floods checker: a process under a flood, or with a destination whose name does not resolve,
//! still serves all others.

use std::collections::HashMap;

use super::{Violation, bounds::RESIDENT, violated};
use crate::{
    artifacts::{Artifacts, Fault},
    clients::Kind,
};

/// How long `/healthz` may take in one of a hundred cases, beside a flood, in milliseconds.
const ALIVE_MS: u64 = 1_000;
/// How long nine in ten events may take to the feed while others are in trouble, in nanoseconds; without
/// trouble they take some hundredths of a second.
const ARRIVES: u64 = 3_000_000_000;
/// The fewest events that say anything.
const FEWEST: usize = 10;

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    for fault in artifacts.faults.iter().filter(|it| it.bit) {
        let slowest = fault.told["healthz_ms"]["p99"].as_u64();
        if slowest > Some(ALIVE_MS) {
            let what = format!(
                "one in a hundred waited {slowest:?} ms for /healthz beside {}",
                fault.how
            );
            found.push(violated(13, what));
        }
        let peak = fault.told["peak"].as_u64();
        if peak > Some(RESIDENT) {
            let what = format!("{peak:?} bytes of memory beside {}", fault.how);
            found.push(violated(14, what));
        }
        found.extend(held_up(fault, artifacts));
    }
    found
}

/// Late events of a period in which the feed had no fault.
fn held_up(fault: &Fault, artifacts: &Artifacts) -> Option<Violation> {
    let from = fault.told["watched"][0].as_u64()?;
    let until = fault.told["watched"][1].as_u64()?.saturating_sub(ARRIVES);
    let arrivals: HashMap<_, _> = first_arrivals(artifacts);
    let mut waits: Vec<_> = artifacts
        .of(Kind::Order)
        .filter_map(|it| {
            Some((
                it.granted()?["id"].as_str()?.to_owned(),
                it.lasting()?.ended?,
            ))
        })
        .filter(|(_, at)| (from..until).contains(at))
        .map(|(id, at)| {
            arrivals
                .get(&id)
                .map_or(u64::MAX, |it| it.saturating_sub(at))
        })
        .collect();
    waits.sort_unstable();
    let slow = *waits.get(waits.len() * 9 / 10)?;
    let what = format!(
        "one in ten of {} orders came to the feed after {} ms or more, beside {}",
        waits.len(),
        slow / 1_000_000,
        fault.how
    );
    (waits.len() >= FEWEST && slow > ARRIVES).then(|| violated(13, what))
}

/// When the event of each new order first reached the feed.
fn first_arrivals(artifacts: &Artifacts) -> HashMap<String, u64> {
    let mut first = HashMap::new();
    for arrival in &artifacts.feed.arrivals {
        let Some(said) = artifacts.feed.said.get(&arrival.id) else {
            continue;
        };
        if said["type"] == "order.created"
            && let Some(id) = said["data"]["id"].as_str()
        {
            first.entry(id.to_owned()).or_insert(arrival.at);
        }
    }
    first
}
