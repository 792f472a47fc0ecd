//! Checker of events: each acknowledged effect has one event, and there are no other events.

use std::collections::HashMap;

use serde_json::Value;

use super::Violation;
use crate::kill::{
    evidence::{Acknowledged, Evidence},
    receiver::Delivery,
};

pub(super) fn violations(evidence: &Evidence) -> Vec<Violation> {
    let mut events: HashMap<&str, &Delivery> = HashMap::new();
    for delivery in &evidence.received.deliveries {
        events.entry(&delivery.event_id).or_insert(delivery);
    }
    let mut by_subject: HashMap<(String, String), Vec<(&Delivery, Value)>> = HashMap::new();
    for delivery in events.into_values() {
        let said = delivery.json();
        by_subject
            .entry(subject(&said))
            .or_default()
            .push((delivery, said));
    }
    let mut found = Vec::new();
    for acknowledged in evidence.acknowledged() {
        let Some((kind, _)) = acknowledged.intent.operation.event() else {
            continue;
        };
        let subject = acknowledged.answer.id().unwrap_or_default();
        let told_of = by_subject
            .remove(&(kind.to_owned(), subject.clone()))
            .unwrap_or_default();
        match &told_of[..] {
            [] => found.push(Violation::NeverDelivered { kind, subject }),
            [(delivery, said)] if !agrees(acknowledged, said) => {
                let (event_id, body) = named(delivery);
                found.push(Violation::ChangedEvent { event_id, body });
            }
            [_] => {}
            several => found.push(Violation::TwoEvents {
                kind,
                subject,
                events: several.len(),
            }),
        }
    }
    let unexplained = by_subject.into_values().flatten();
    found.extend(unexplained.map(|(delivery, _)| {
        let (event_id, body) = named(delivery);
        Violation::UnexplainedEvent { event_id, body }
    }));
    found
}

/// The subject of an event: its type, and the id of the created resource.
fn subject(said: &Value) -> (String, String) {
    use crate::kill::journal::Operation::{Message, Order, Payment, Refund, Signup};
    let kind = said["type"].as_str().unwrap_or_default();
    let known =
        [Order, Payment, Refund, Signup, Message].map(crate::kill::journal::Operation::event);
    let member = known
        .into_iter()
        .flatten()
        .find(|(known, _)| *known == kind);
    let id = member
        .and_then(|(_, member)| said["data"][member].as_str())
        .unwrap_or_default();
    (kind.to_owned(), id.to_owned())
}

/// Whether all data of the event is in the acknowledged response as well.
fn agrees(acknowledged: Acknowledged<'_>, said: &Value) -> bool {
    let outcome = acknowledged.answer.json();
    let Some((_, member)) = acknowledged.intent.operation.event() else {
        return false;
    };
    let Some(data) = said["data"].as_object() else {
        return false;
    };
    data.iter()
        .all(|(name, value)| name == member || outcome[name] == *value)
}

fn named(delivery: &Delivery) -> (String, String) {
    (
        delivery.event_id.clone(),
        String::from_utf8_lossy(&delivery.body).into_owned(),
    )
}
