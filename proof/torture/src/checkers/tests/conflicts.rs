//! Conflicts: another payload under the key of a request that runs.

use serde_json::{Value, json};

use super::{accept, check, coverage, missing};
use crate::{
    checkers::sample::{SECOND, Sample, response},
    clients::Operation,
};

const SAME_NODE: &str = "conflicts with a running phase on the same node";
const OTHER_NODE: &str = "conflicts with a running phase on another node";

#[test]
fn a_conflict_that_is_refused_while_the_first_request_runs_is_as_promised() {
    check_conflict(&[], |_| {});
}

#[test]
fn another_payload_that_is_executed_is_found() {
    check_conflict(&[4], |conflict| {
        let executed = response(201, "stored", &json!({ "id": "ch_9" }));
        conflict["others"][1]["response"] = executed;
    });
}

#[test]
fn another_payload_that_gets_the_response_of_the_first_one_is_found() {
    check_conflict(&[4], |conflict| {
        let replayed = response(201, "replayed", &json!({ "id": "ch_2" }));
        conflict["others"][0]["response"] = replayed;
    });
}

#[test]
fn another_payload_that_is_to_be_sent_again_is_found_unless_the_claim_is_optimistic() {
    check_conflict(&[4], |conflict| {
        conflict["others"][0]["response"] = refused(409, "CONFLICT.idempotency.in_progress");
    });
    check_conflict(&[], |conflict| {
        conflict["others"][0]["response"] = refused(409, "CONFLICT.idempotency.in_progress");
        conflict["others"][0]["is_optimistic"] = json!(true);
    });
}

#[test]
fn another_payload_that_gets_another_refusal_is_found() {
    for (status, code) in [
        (409, "CONFLICT.refund.exceeds_charge"),
        (412, "CONFLICT.precondition"),
        (422, "CONFLICT.idempotency.payload_mismatch"),
        (429, "RATE_LIMIT.exceeded"),
    ] {
        check_conflict(&[4], |conflict| {
            conflict["others"][0]["response"] = refused(status, code);
            conflict["others"][0]["is_optimistic"] = json!(true);
        });
    }
}

#[test]
fn an_error_of_a_fault_says_nothing_of_another_payload() {
    for response in [Value::Null, refused(500, ""), refused(503, "")] {
        check_conflict(&[], |conflict| {
            conflict["others"][0]["response"] = response;
        });
    }
}

#[test]
fn a_first_request_that_another_payload_has_disturbed_is_found() {
    check_conflict(&[2, 3], |conflict| {
        let mismatch = refused(409, "CONFLICT.idempotency.payload_mismatch");
        conflict["first"]["response"] = mismatch;
    });
    check_conflict(&[3], |conflict| {
        let other = response(201, "replayed", &json!({ "id": "ch_9" }));
        conflict["after"][0]["response"] = other;
    });
    // Its response was lost, and it was executed again.
    check_conflict(&[3], |conflict| {
        conflict["first"]["response"] = Value::Null;
        let other = response(201, "stored", &json!({ "id": "ch_9" }));
        let again = exchange("shop-0", [19, 20], &other);
        let after = conflict["after"].as_array_mut();
        after.expect("it is a list").push(again);
    });
    check_conflict(&[], |conflict| {
        conflict["first"]["response"] = Value::Null;
    });
}

#[test]
fn a_run_without_an_early_conflict_proves_nothing_about_it() {
    check_missing(&[SAME_NODE, OTHER_NODE], None);
    check_missing(&[], Some(sound()));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut conflict = sound();
        change(&mut conflict);
        Some(conflict)
    };
    // One shop did not refuse it.
    let unavailable = with(&|it| it["others"][1]["response"] = refused(503, ""));
    check_missing(&[OTHER_NODE], unavailable);
    // One response came when the first request could continue, one request was sent too early.
    let late = with(&|it| it["others"][0]["ended"] = json!(18 * SECOND));
    check_missing(&[SAME_NODE], late);
    let too_soon = with(&|it| it["others"][0]["began"] = json!(14 * SECOND));
    check_missing(&[SAME_NODE], too_soon);
}

#[test]
fn a_change_of_the_operator_that_is_lost_is_found() {
    check(&[], |run| {
        change(run, 2, &json!({ "id": "ord_5", "version": 2 }));
    });
    check(&[1, 2], |run| {
        change(run, 1, &json!({ "id": "ord_5", "version": 2 }));
    });
    // It may have been made, or not.
    for version in [1, 2] {
        check(&[], |run| change(run, version, &Value::Null));
    }
}

/// An order of the operator that has this version, and the response to its change.
fn change(run: &mut Sample, version: u64, outcome: &Value) {
    let order = Operation::order("alice", 95);
    let made = json!({ "id": "ord_5", "note": order.body["note"] });
    let change = Operation::update("alice", 111, &made, "\"1\"").expect("it has an id");
    let created = response(201, "stored", &json!({ "id": "ord_5" }));
    run.operator_line("requested", &order, 17, &created);
    let response = match outcome {
        Value::Null => Value::Null,
        outcome => response(200, "stored", outcome),
    };
    run.operator_line("requested", &change, 18, &response);
    let row = json!({
        "id": "ord_5", "note": order.body["note"], "amount": change.body["amount"], "version": version,
    });
    run.push("orders", row);
    let created = json!({ "id": "ord_5", "version": 1 });
    run.deliver("order.created", "ord_5", &created);
    accept(run, "ev_ord_5");
    if version > 1 {
        let updated = json!({ "id": "ord_5", "version": version });
        run.deliver("order.updated", "ord_5/2", &updated);
    }
}

/// Changes a conflict that is as promised, and checks that exactly these invariants are violated.
#[track_caller]
fn check_conflict(expected: &[usize], change: impl FnOnce(&mut Value)) {
    check(expected, |run| {
        let mut conflict = sound();
        change(&mut conflict);
        run.add("conflicts.jsonl", conflict);
    });
}

/// Checks which conflicts are missing in a run with this one.
#[track_caller]
fn check_missing(expected: &[&str], conflict: Option<Value>) {
    let mut run = Sample::sound();
    if let Some(conflict) = conflict {
        run.add("conflicts.jsonl", conflict);
    }
    let coverage = coverage(&run.artifacts());
    let mut never = missing(&coverage);
    never.retain(|it| [SAME_NODE, OTHER_NODE].contains(it));
    never.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(never, expected);
}

/// A payment of the operator that was held, and two requests with another payload.
fn sound() -> Value {
    let payment = Operation::payment("alice", 63);
    let mismatch = || refused(409, "CONFLICT.idempotency.payload_mismatch");
    let charge = |status: &str| response(201, status, &json!({ "id": "ch_2" }));
    json!({
        "held": "phase", "operation": payment, "claimed_at": 15 * SECOND, "released_at": 17 * SECOND,
        "first": exchange("shop-0", [14, 18], &charge("stored")),
        "others": [
            exchange("shop-0", [15, 16], &mismatch()), exchange("shop-1", [15, 16], &mismatch()),
        ],
        "after": [exchange("shop-1", [18, 19], &charge("replayed"))],
    })
}

fn exchange(node: &str, [began, ended]: [u64; 2], response: &Value) -> Value {
    json!({
        "node": node, "is_optimistic": false, "began": began * SECOND, "ended": ended * SECOND,
        "response": response,
    })
}

fn refused(status: u16, code: &str) -> Value {
    response(status, "", &json!({ "code": code }))
}
