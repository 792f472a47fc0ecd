//! Floods checker: a process under a flood, or with a destination whose name does not resolve,
//! still serves all others.

use std::collections::HashMap;

use super::{Violation, bounds::RESIDENT, violated};
use crate::{
    artifacts::{Artifacts, Fault},
    clients::Kind,
};

/// Allowed 99th percentile of the latency of `/healthz` during a flood, in milliseconds.
const ALIVE_MS: u64 = 1_000;
/// Allowed 90th percentile of the time until events arrive at the feed during a fault of others, in
/// nanoseconds; without a fault it is some hundredths of a second.
const ARRIVES: u64 = 3_000_000_000;
/// The minimum number of events for a result.
const FEWEST: usize = 10;

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    for fault in artifacts.faults.iter().filter(|it| it.took_effect) {
        let slowest = fault.line["healthz_ms"]["p99"].as_u64();
        if slowest > Some(ALIVE_MS) {
            let what = format!(
                "the 99th percentile of /healthz was {slowest:?} ms during {}",
                fault.injection
            );
            found.push(violated(13, what));
        }
        let peak = fault.line["peak"].as_u64();
        if peak > Some(RESIDENT) {
            let what = format!("{peak:?} bytes of memory during {}", fault.injection);
            found.push(violated(14, what));
        }
        found.extend(late(fault, artifacts));
    }
    found
}

/// Late events of a period in which the feed had no fault.
fn late(fault: &Fault, artifacts: &Artifacts) -> Option<Violation> {
    let from = fault.line["watched"][0].as_u64()?;
    let until = fault.line["watched"][1].as_u64()?.saturating_sub(ARRIVES);
    let arrivals: HashMap<_, _> = first_arrivals(artifacts);
    let mut waits: Vec<_> = artifacts
        .of(Kind::Order)
        .filter_map(|it| {
            Some((
                it.acknowledged()?["id"].as_str()?.to_owned(),
                it.final_attempt()?.ended?,
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
        "one in ten of {} orders arrived at the feed after {} ms or more, during {}",
        waits.len(),
        slow / 1_000_000,
        fault.injection
    );
    (waits.len() >= FEWEST && slow > ARRIVES).then(|| violated(13, what))
}

/// When the event of each new order first reached the feed.
fn first_arrivals(artifacts: &Artifacts) -> HashMap<String, u64> {
    let mut first = HashMap::new();
    for arrival in &artifacts.feed.arrivals {
        let Some(content) = artifacts.feed.contents.get(&arrival.id) else {
            continue;
        };
        if content["type"] == "order.created"
            && let Some(id) = content["data"]["id"].as_str()
        {
            first.entry(id.to_owned()).or_insert(arrival.at);
        }
    }
    first
}
