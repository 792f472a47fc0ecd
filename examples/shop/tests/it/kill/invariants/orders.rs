//! Checker of orders: the acknowledged orders exist, once each, and there are no other orders.

use std::collections::HashMap;

use serde_json::Value;

use super::Violation;
use crate::kill::{
    evidence::{Acknowledged, Evidence},
    journal::{Operation, Outcome},
};

pub(super) fn violations(evidence: &Evidence) -> Vec<Violation> {
    let mut by_note: HashMap<(&str, String), Vec<&Value>> = HashMap::new();
    for (tenant, order) in &evidence.orders {
        by_note
            .entry((tenant, text(&order["note"])))
            .or_default()
            .push(order);
    }
    let mut found = Vec::new();
    for acknowledged in evidence.acknowledged() {
        let Acknowledged { intent, answer } = acknowledged;
        if intent.operation != Operation::Order {
            continue;
        }
        let outcome = answer.json();
        let note = text(&intent.body["note"]);
        let listed = by_note
            .remove(&(intent.tenant, note.clone()))
            .unwrap_or_default();
        found.extend(judge(&outcome, &note, &listed, evidence));
    }
    let unasked = by_note.into_values().flatten();
    found.extend(unasked.map(|order| Violation::UnaskedOrder {
        id: text(&order["id"]),
    }));
    found
}

fn judge(outcome: &Value, note: &str, listed: &[&Value], evidence: &Evidence) -> Option<Violation> {
    let id = text(&outcome["id"]);
    let read = match evidence.read.get(&id) {
        Some(Outcome::Answered(answer)) if answer.status == 200 => answer.json(),
        _ => return Some(Violation::LostOrder { id }),
    };
    match listed {
        [] => Some(Violation::LostOrder { id }),
        [row] if *row == outcome && read == *outcome => None,
        [_] => Some(Violation::ChangedOrder { id }),
        several => Some(Violation::TwoEffects {
            note: note.to_owned(),
            orders: several.len(),
        }),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
