//! Tests of the checkers: each adds a violation to a valid run, and expects exactly this violation.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    Violation,
    deliveries::{UNREAD, UNSETTLED},
    violations,
};
use crate::kill::{
    evidence::Evidence,
    journal::Outcome,
    sample::{ORDER, REFUSED, SIGNUP, answer, attempt, delivery, sound, told},
};

/// The smallest difference between two points in time.
const MOMENT: Duration = Duration::from_millis(1);

#[test]
fn nothing_is_found_in_a_sound_run() {
    check(|_| {}, &[]);
}

#[test]
fn an_order_that_is_lost_is_found() {
    let lost = Violation::LostOrder {
        id: "ord_a".to_owned(),
    };
    check(
        |evidence| drop(evidence.orders.remove(0)),
        std::slice::from_ref(&lost),
    );
    check(
        |evidence| {
            let missing = answer(404, "", &json!({}));
            evidence
                .read
                .insert("ord_a".to_owned(), Outcome::Answered(missing));
        },
        &[lost],
    );
}

#[test]
fn an_order_that_changed_is_found() {
    let changed = [Violation::ChangedOrder {
        id: "ord_a".to_owned(),
    }];
    check(
        |evidence| evidence.orders[0].1["amount"] = json!(501),
        &changed,
    );
}

#[test]
fn two_effects_of_one_key_are_found() {
    let twice = Violation::TwoEffects {
        note: "alice/k-1".to_owned(),
        orders: 2,
    };
    check(|evidence| evidence.orders.push(second_order()), &[twice]);
}

#[test]
fn an_order_without_an_event_is_found() {
    check(
        |evidence| {
            let (tenant, mut order) = second_order();
            order["note"] = json!("alice/k-9");
            evidence.orders.push((tenant, order));
        },
        &[Violation::UnaskedOrder {
            id: "ord_z".to_owned(),
        }],
    );
}

#[test]
fn an_effect_that_another_tenants_key_swallowed_is_found() {
    check(
        |evidence| {
            let other = evidence
                .history
                .attempts
                .iter_mut()
                .filter(|attempt| attempt.intent == 1);
            let order = json!({ "id": "ord_a", "note": "alice/k-1", "amount": 500 });
            for attempt in other {
                attempt.outcome = Outcome::Answered(answer(201, "replayed", &order));
            }
        },
        &[
            Violation::ChangedOrder {
                id: "ord_a".to_owned(),
            },
            Violation::NeverDelivered {
                kind: "order.created",
                subject: "ord_a".to_owned(),
            },
            unexplained("ev_b"),
        ],
    );
}

#[test]
fn a_request_without_an_answer_is_found() {
    let of_refused = |evidence: &mut Evidence| {
        evidence
            .history
            .attempts
            .retain(|attempt| attempt.intent != REFUSED);
    };
    check(
        of_refused,
        &[Violation::Unanswered {
            tenant: "alice",
            key: "k-4".to_owned(),
        }],
    );
}

#[test]
fn an_answer_that_no_death_explains_is_found() {
    let failed = answer(500, "", &json!("oops"));
    check(
        |evidence| {
            let failed = attempt(ORDER, [900, 950], Outcome::Answered(failed));
            evidence.history.attempts.insert(0, failed);
        },
        &[Violation::UnexpectedAnswer {
            tenant: "alice",
            key: "k-1".to_owned(),
            status: 500,
            body: "\"oops\"".to_owned(),
        }],
    );
}

#[test]
fn a_replay_that_differs_in_a_byte_is_found() {
    let mut evidence = sound();
    let replay = evidence
        .history
        .attempts
        .iter_mut()
        .filter(|attempt| attempt.intent == REFUSED);
    let replay = replay.last().expect("it was answered");
    let Outcome::Answered(answer) = &mut replay.outcome else {
        panic!("it was answered")
    };
    answer.body = [answer.body.as_ref(), b" "].concat().into();
    let found = violations(&evidence);
    assert!(
        matches!(&found[..], [Violation::ReplayDiffers { key, .. }] if key == "k-4"),
        "{found:?}"
    );
}

#[test]
fn a_key_that_ran_again_is_found() {
    let again = answer(
        409,
        "stored",
        &json!({ "code": "CONFLICT.refund.exceeds_charge" }),
    );
    check(
        |evidence| {
            let again = attempt(REFUSED, [3_000, 3_010], Outcome::Answered(again));
            evidence.history.attempts.push(again);
        },
        &[Violation::RanAgain {
            tenant: "alice",
            key: "k-4".to_owned(),
            times: 2,
        }],
    );
}

#[test]
fn another_request_that_was_taken_under_a_known_key_is_found() {
    check(
        |evidence| {
            let taken = answer(201, "stored", &json!({ "id": "ord_a" }));
            let mut taken = attempt(ORDER, [3_000, 3_010], Outcome::Answered(taken));
            taken.altered = true;
            evidence.history.attempts.push(taken);
        },
        &[Violation::MismatchTaken {
            tenant: "alice",
            key: "k-1".to_owned(),
            status: 201,
        }],
    );
}

#[test]
fn a_refund_without_an_entry_or_with_two_is_found() {
    let wrong = |found| Violation::WrongEntries {
        charge_id: "ch_1".to_owned(),
        kind: "refund",
        found,
        acknowledged: vec![60],
    };
    check(
        |evidence| drop(evidence.entries.remove(1)),
        &[wrong(vec![])],
    );
    let beyond = Violation::RefundedTooMuch {
        charge_id: "ch_1".to_owned(),
        amount: 100,
        refunded: 120,
    };
    check(
        |evidence| evidence.entries.push(evidence.entries[1].clone()),
        &[wrong(vec![60, 60]), beyond],
    );
}

#[test]
fn money_that_moved_at_the_provider_alone_or_not_at_all_is_found() {
    let wrong = |charge_id: &str, kind, found, acknowledged| Violation::WrongAtProvider {
        charge_id: charge_id.to_owned(),
        kind,
        found,
        acknowledged,
    };
    check(
        |evidence| {
            let again = json!({ "id": "ch_2", "kind": "charge", "amount": 100 });
            evidence.provider.push(again);
        },
        &[wrong("ch_2", "charge", vec![100], vec![])],
    );
    check(
        |evidence| evidence.provider.push(evidence.provider[1].clone()),
        &[wrong("ch_1", "refund", vec![60, 60], vec![60])],
    );
    check(
        |evidence| drop(evidence.provider.remove(1)),
        &[wrong("ch_1", "refund", vec![], vec![60])],
    );
}

#[test]
fn a_message_that_was_taken_twice_is_found() {
    check(
        |evidence| evidence.entries.push(evidence.entries[2].clone()),
        &[Violation::WrongEntries {
            charge_id: "ch_k-6".to_owned(),
            kind: "message",
            found: vec![7, 7],
            acknowledged: vec![7],
        }],
    );
}

#[test]
fn an_event_that_is_never_delivered_is_found() {
    check(
        |evidence| {
            evidence
                .received
                .deliveries
                .retain(|delivery| delivery.event_id != "ev_a");
        },
        &[Violation::NeverDelivered {
            kind: "order.created",
            subject: "ord_a".to_owned(),
        }],
    );
}

#[test]
fn an_event_that_nothing_explains_is_found() {
    check(
        |evidence| {
            let said = json!({ "type": "order.created", "data": { "id": "ord_z" } });
            deliver(evidence, "ev_z", &said);
        },
        &[unexplained("ev_z")],
    );
}

#[test]
fn two_events_of_one_effect_are_found() {
    let twice = Violation::TwoEvents {
        kind: "user.signed_up",
        subject: "usr_1".to_owned(),
        events: 2,
    };
    check(
        |evidence| {
            let said = told(evidence, SIGNUP);
            deliver(evidence, "ev_again", &said);
        },
        &[twice],
    );
}

#[test]
fn an_event_that_says_something_else_is_found() {
    let mut evidence = sound();
    let mut said = told(&evidence, SIGNUP);
    said["data"]["email"] = json!("somebody@else.example");
    let signed_up = evidence.received.deliveries.iter_mut();
    let mut signed_up = signed_up.filter(|delivery| delivery.event_id == "ev_signed_up");
    signed_up.next().expect("it was delivered").body = said.to_string().into();
    let found = violations(&evidence);
    assert!(
        matches!(&found[..], [Violation::ChangedEvent { .. }]),
        "{found:?}"
    );
}

#[test]
fn a_duplicate_that_no_death_lies_before_is_found() {
    let last = sound().deaths[1].latest;
    let (first, again) = (last + UNREAD, last + UNREAD + 2 * MOMENT);
    check_duplicate(first, again, true);
    check_duplicate(first + MOMENT, again, false);
}

#[test]
fn a_duplicate_of_what_was_settled_long_before_the_death_is_found() {
    let died = sound().deaths[1].earliest + Duration::from_mins(1);
    // In the sample, a delivery gets its response 5 ms after it arrives.
    let first = died.saturating_sub(UNSETTLED + 5 * MOMENT);
    check_duplicate(first, died + MOMENT, true);
    check_duplicate(first.saturating_sub(MOMENT), died + MOMENT, false);
}

#[test]
fn a_duplicate_after_a_lost_answer_is_explained() {
    check(
        |evidence| {
            let said = told(evidence, SIGNUP);
            let mut lost = delivery("ev_signed_up", &said, 60_000);
            (lost.answered, lost.lost) = (None, true);
            evidence.received.deliveries.push(lost);
            evidence
                .received
                .deliveries
                .push(delivery("ev_signed_up", &said, 60_020));
        },
        &[],
    );
}

#[test]
fn a_delivery_whose_body_changed_is_found() {
    check(
        |evidence| {
            let again = evidence
                .received
                .deliveries
                .last_mut()
                .expect("there are deliveries");
            again.body = [again.body.as_ref(), b" "].concat().into();
        },
        &[Violation::ChangedDelivery {
            event_id: "ev_a".to_owned(),
        }],
    );
}

#[test]
fn a_second_effect_of_one_event_is_found() {
    let twice = |receiver| Violation::NotOneEffect {
        event_id: "ev_a".to_owned(),
        receiver,
        effects: 2,
    };
    check(
        |evidence| evidence.received.effects.push("ev_a".to_owned()),
        &[twice("the receiver")],
    );
    check(
        |evidence| evidence.demo[0]["effects"] = json!(2),
        &[twice("the demo's receiver")],
    );
}

#[test]
fn an_event_that_the_demos_receiver_never_got_is_found() {
    let (event_id, receiver) = ("ev_a".to_owned(), "the demo's receiver");
    let none = Violation::NotOneEffect {
        event_id,
        receiver,
        effects: 0,
    };
    check(|evidence| drop(evidence.demo.remove(0)), &[none]);
}

#[test]
fn a_delivery_that_was_refused_is_found() {
    let why = "ev_a: no signature matches".to_owned();
    let refused = Violation::RefusedDelivery { why: why.clone() };
    check(|evidence| evidence.received.refusals.push(why), &[refused]);
}

#[test]
fn a_welcome_that_was_not_mailed_or_mailed_twice_is_found() {
    let email = "k-5@alice.example".to_owned();
    let not_one = |mails| Violation::NotOneMail {
        email: email.clone(),
        mails,
    };
    check(|evidence| evidence.mails.clear(), &[not_one(0)]);
    check(
        |evidence| evidence.mails.push(evidence.mails[0].clone()),
        &[not_one(2)],
    );
    let unexplained = Violation::UnexplainedMail {
        mails: 2,
        signups: 1,
    };
    check(
        |evidence| evidence.mails.push("To: nobody@known.example".to_owned()),
        &[unexplained],
    );
}

/// Changes a valid run, and expects exactly these violations.
#[track_caller]
fn check(plant: impl FnOnce(&mut Evidence), expected: &[Violation]) {
    let mut evidence = sound();
    plant(&mut evidence);
    assert_eq!(violations(&evidence), expected);
}

/// Delivers an event twice. The last death is one minute later, and explains the duplicate or not.
#[track_caller]
fn check_duplicate(first: Duration, again: Duration, explained: bool) {
    let duplicate = Violation::UnexplainedDuplicate {
        event_id: "ev_signed_up".to_owned(),
        again,
    };
    let expected = if explained { vec![] } else { vec![duplicate] };
    check(
        |evidence| {
            let mut late = evidence.deaths[1];
            late.earliest += Duration::from_mins(1);
            late.latest += Duration::from_mins(1);
            evidence.deaths.push(late);
            let said = told(evidence, SIGNUP);
            let deliveries = &mut evidence.received.deliveries;
            deliveries.retain(|delivery| delivery.event_id != "ev_signed_up");
            let at = |moment: Duration| u64::try_from(moment.as_millis()).expect("it fits 64 bits");
            deliveries.push(delivery("ev_signed_up", &said, at(first)));
            deliveries.push(delivery("ev_signed_up", &said, at(again)));
        },
        &expected,
    );
}

/// Delivers an event to both receivers, with its effect.
fn deliver(evidence: &mut Evidence, event_id: &str, said: &Value) {
    evidence
        .received
        .deliveries
        .push(delivery(event_id, said, 2_200));
    evidence.received.effects.push(event_id.to_owned());
    evidence
        .demo
        .push(json!({ "event_id": event_id, "effects": 1 }));
}

fn second_order() -> (&'static str, Value) {
    (
        "alice",
        json!({ "id": "ord_z", "note": "alice/k-1", "amount": 500 }),
    )
}

fn unexplained(event_id: &str) -> Violation {
    let id = event_id.replace("ev", "ord");
    let mut said = json!({ "type": "order.created", "data": { "id": id } });
    if id == "ord_b" {
        said = told(&sound(), 1);
    }
    Violation::UnexplainedEvent {
        event_id: event_id.to_owned(),
        body: said.to_string(),
    }
}
