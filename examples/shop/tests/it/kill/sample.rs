//! Sample: a small valid run with two deaths.
//!
//! Two tenants use the same key for an order. The first order was cut off by a death and sent
//! again. Its event was delivered twice because of another death.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    answer::Answer,
    evidence::{Death, Evidence},
    journal::{Attempt, Intent, Operation, Outcome},
    receiver::Delivery,
};

/// The index of alice's order among the intents.
pub(super) const ORDER: usize = 0;
/// The index of the refund that was rejected.
pub(super) const REFUSED: usize = 4;
/// The index of the signup.
pub(super) const SIGNUP: usize = 5;

/// The valid run.
pub(super) fn sound() -> Evidence {
    let mut evidence = Evidence {
        deaths: vec![death(1_050), death(2_250)],
        ..Evidence::default()
    };
    place_order(&mut evidence, "alice", "ord_a");
    place_order(&mut evidence, "bob", "ord_b");
    take_money(&mut evidence);
    sign_up(&mut evidence);
    receive_message(&mut evidence);
    evidence
        .history
        .attempts
        .insert(0, attempt(ORDER, [1_000, 1_100], Outcome::Lost));
    evidence
        .received
        .deliveries
        .push(delivery("ev_a", &told(&evidence, ORDER), 2_300));
    evidence
}

/// An attempt of the intent at `place`, with the times of its beginning and end in milliseconds.
pub(super) fn attempt(place: usize, [began, ended]: [u64; 2], outcome: Outcome) -> Attempt {
    let (began, ended) = (Duration::from_millis(began), Duration::from_millis(ended));
    Attempt {
        intent: place,
        altered: false,
        began,
        ended,
        outcome,
    }
}

/// A response with this status, and with `came` as its `Idempotency-Status`.
pub(super) fn answer(status: u16, came: &str, body: &Value) -> Answer {
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-status", came),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Answer {
        status,
        headers: headers.into(),
        body: Bytes::from(body.to_string()),
    }
}

/// A delivery of an event with the body `said`, whose response was sent 5 ms later.
pub(super) fn delivery(event_id: &str, said: &Value, arrived: u64) -> Delivery {
    let at = Duration::from_millis;
    Delivery {
        event_id: event_id.to_owned(),
        body: Bytes::from(said.to_string()),
        arrived: at(arrived),
        answered: Some(at(arrived + 5)),
        lost: false,
    }
}

/// The body of the event of the intent at `place`.
pub(super) fn told(evidence: &Evidence, place: usize) -> Value {
    let found = evidence.acknowledged().into_iter();
    let intent = &evidence.history.intents[place];
    let mut found = found.filter(|found| std::ptr::eq(found.intent, intent));
    let answer = found.next().expect("the sample acknowledges it").answer;
    let (kind, member) = intent.operation.event().expect("it has an event");
    let mut data = answer.json();
    data[member] = data["id"].clone();
    json!({ "type": kind, "timestamp": "2026-01-01T00:00:00Z", "data": data })
}

fn death(millis: u64) -> Death {
    let earliest = Duration::from_millis(millis);
    Death {
        earliest,
        latest: earliest + Duration::from_millis(1),
    }
}

fn mean(
    evidence: &mut Evidence,
    operation: Operation,
    tenant: &'static str,
    key: &str,
    body: Value,
) -> usize {
    evidence.history.intents.push(Intent {
        tenant,
        operation,
        key: key.to_owned(),
        body,
    });
    evidence.history.intents.len() - 1
}

/// Adds a response and a replay of it.
fn tell(evidence: &mut Evidence, place: usize, status: u16, body: &Value) {
    for (came, moment) in [("stored", 2_000), ("replayed", 2_100)] {
        let outcome = Outcome::Answered(answer(status, came, body));
        evidence
            .history
            .attempts
            .push(attempt(place, [moment, moment + 10], outcome));
    }
}

/// Delivers the event of the intent at `place` to both receivers, once.
fn deliver(evidence: &mut Evidence, place: usize, event_id: &str) {
    let said = told(evidence, place);
    evidence
        .received
        .deliveries
        .push(delivery(event_id, &said, 2_200));
    evidence.received.effects.push(event_id.to_owned());
    evidence
        .demo
        .push(json!({ "event_id": event_id, "deliveries": 1, "effects": 1 }));
}

fn place_order(evidence: &mut Evidence, tenant: &'static str, id: &str) {
    let note = format!("{tenant}/k-1");
    let place = mean(
        evidence,
        Operation::Order,
        tenant,
        "k-1",
        json!({ "note": note }),
    );
    let order = json!({ "id": id, "note": note, "amount": 500 });
    tell(evidence, place, 201, &order);
    let read = Outcome::Answered(answer(200, "", &order));
    evidence.read.insert(id.to_owned(), read);
    evidence.orders.push((tenant, order));
    deliver(evidence, place, &id.replace("ord", "ev"));
}

/// A charge of 100, a refund of 60, and a second refund that exceeds the charge.
fn take_money(evidence: &mut Evidence) {
    let paid = mean(
        evidence,
        Operation::Payment,
        "alice",
        "k-2",
        json!({ "amount": 100 }),
    );
    tell(evidence, paid, 201, &json!({ "id": "ch_1", "amount": 100 }));
    deliver(evidence, paid, "ev_paid");
    let body = json!({ "charge_id": "ch_1", "amount": 60 });
    let refunded = mean(evidence, Operation::Refund, "alice", "k-3", body.clone());
    tell(
        evidence,
        refunded,
        201,
        &json!({ "id": "rf_1", "charge_id": "ch_1", "amount": 60 }),
    );
    deliver(evidence, refunded, "ev_refunded");
    let refused = mean(evidence, Operation::Refund, "alice", "k-4", body);
    tell(
        evidence,
        refused,
        409,
        &json!({ "code": "CONFLICT.refund.exceeds_charge" }),
    );
    for (kind, amount) in [("charge", 100), ("refund", 60)] {
        let entry =
            json!({ "charge_id": "ch_1", "kind": kind, "amount": amount, "source": "shop" });
        evidence.entries.push(("alice", entry));
    }
    evidence.provider = vec![
        json!({ "id": "ch_1", "kind": "charge", "amount": 100 }),
        json!({ "id": "re_1", "kind": "refund", "charge": "ch_1", "amount": 60 }),
    ];
}

fn sign_up(evidence: &mut Evidence) {
    let body = json!({ "email": "k-5@alice.example", "name": "Ann" });
    let place = mean(evidence, Operation::Signup, "alice", "k-5", body);
    tell(
        evidence,
        place,
        201,
        &json!({ "id": "usr_1", "email": "k-5@alice.example" }),
    );
    deliver(evidence, place, "ev_signed_up");
    evidence
        .mails
        .push("To: Ann <k-5@alice.example>".to_owned());
}

fn receive_message(evidence: &mut Evidence) {
    let body = json!({ "data": { "charge_id": "ch_k-6", "amount": 7 } });
    let place = mean(evidence, Operation::Message, "bob", "k-6", body);
    tell(evidence, place, 200, &json!({}));
    let entry =
        json!({ "charge_id": "ch_k-6", "kind": "charge", "amount": 7, "source": "provider" });
    evidence.entries.push(("alice", entry));
}
