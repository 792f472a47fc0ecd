//! Checker of deliveries: an event is delivered again only because of a death or a lost response,
//! and has its effect once.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use super::Violation;
use crate::kill::{
    evidence::{Death, Evidence},
    receiver::Delivery,
};

/// If a delivery ended at most this long before a death, its outcome may have been lost.
///
/// The relay records an outcome within a few milliseconds. The rest is a margin for a busy machine.
pub(super) const UNSETTLED: Duration = Duration::from_secs(3);
/// After a death, the receiver may read what the shop had sent for this long.
pub(super) const UNREAD: Duration = Duration::from_millis(500);

pub(super) fn violations(evidence: &Evidence) -> Vec<Violation> {
    let mut by_event: BTreeMap<&str, Vec<&Delivery>> = BTreeMap::new();
    for delivery in &evidence.received.deliveries {
        by_event
            .entry(&delivery.event_id)
            .or_default()
            .push(delivery);
    }
    let mut found = Vec::new();
    for deliveries in by_event.values() {
        for pair in deliveries.windows(2) {
            found.extend(judge(pair[0], pair[1], evidence));
        }
    }
    found.extend(effects(by_event.keys().copied(), evidence));
    let refusals = evidence.received.refusals.iter().cloned();
    found.extend(refusals.map(|why| Violation::RefusedDelivery { why }));
    found
}

fn judge(first: &Delivery, again: &Delivery, evidence: &Evidence) -> Option<Violation> {
    let event_id = first.event_id.clone();
    if first.body != again.body {
        return Some(Violation::ChangedDelivery { event_id });
    }
    let mut moments = evidence.deaths.iter().chain(&evidence.upheavals);
    let explained = first.lost || moments.any(|moment| explains(moment, first, again));
    let again = again.arrived;
    (!explained).then_some(Violation::UnexplainedDuplicate { event_id, again })
}

/// Whether the shop may have died before it recorded the outcome of the first delivery.
fn explains(death: &Death, first: &Delivery, again: &Delivery) -> bool {
    let ended = first.answered.unwrap_or(first.arrived);
    death.earliest <= again.arrived.min(ended + UNSETTLED) && death.latest + UNREAD >= first.arrived
}

/// Checks that each delivered event had one effect at the receiver and at the demo's receiver.
fn effects<'a>(events: impl Iterator<Item = &'a str>, evidence: &Evidence) -> Vec<Violation> {
    let mut here: HashMap<&str, u64> = HashMap::new();
    for event in &evidence.received.effects {
        *here.entry(event).or_default() += 1;
    }
    let mut there: HashMap<&str, u64> = HashMap::new();
    let outcome = evidence.demo.iter();
    let outcome =
        outcome.filter_map(|it| Some((it["event_id"].as_str()?, it["effects"].as_u64()?)));
    for (event, effects) in outcome {
        // Each instance has a receiver with a separate inbox.
        let most = there.entry(event).or_default();
        *most = effects.max(*most);
    }
    let mut found = Vec::new();
    for event in events {
        for (receiver, effects) in [("the receiver", &here), ("the demo's receiver", &there)] {
            let effects = effects.get(event).copied().unwrap_or_default();
            if effects != 1 {
                let event_id = event.to_owned();
                found.push(Violation::NotOneEffect {
                    event_id,
                    receiver,
                    effects,
                });
            }
        }
    }
    found
}
