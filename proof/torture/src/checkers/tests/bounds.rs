//! Bounds: retries, responses, deliveries, memory, disk and keys stay within them.

use serde_json::{Value, json};

use super::{accept, check, inject, measure, refunded, remove};
use crate::{
    checkers::sample::{SECOND, Sample, response},
    clients::Operation,
};

#[test]
fn retries_beyond_their_budget_are_found() {
    let send = |run: &mut Sample, id: String, at: u64, after: Option<u64>| {
        let line = json!({
            "what": "request", "id": id, "client": "budgeted", "at": at, "retry_after": after,
        });
        run.add("counter.jsonl", line);
    };
    // Five at once, and the budget of ten seconds.
    check(&[], |run| {
        (0..10).for_each(|number| send(run, "k".to_owned(), SECOND * number, None));
    });
    check(&[12], |run| {
        (0..40).for_each(|number| send(run, "k".to_owned(), SECOND * number / 10, None));
    });
    check(&[12], |run| {
        send(run, "k".to_owned(), SECOND, Some(1));
        send(run, "k".to_owned(), SECOND + SECOND / 2, None);
    });
}

#[test]
fn slow_responses_and_much_memory_during_a_flood_are_found() {
    for (p99, peak, took_effect, expected) in [
        (1_000, 300 << 20, true, &[][..]),
        (1_001, 300 << 20, true, &[13]),
        (10, 500 << 20, true, &[14]),
        (9_000, 500 << 20, false, &[]),
    ] {
        check(expected, |run| {
            inject(run, "flood of members", "Flood(Members(0))", took_effect);
            let line = last_fault(run);
            line["healthz_ms"] = json!({ "p99": p99 });
            line["peak"] = json!(peak);
        });
    }
}

#[test]
fn late_events_beside_an_unresolved_destination_are_found() {
    for (late, waits, expected) in [
        (0, 1, &[][..]),
        (1, 5, &[]),
        (4, 5, &[13]),
        (20, 5, &[13]),
        (20, 2, &[]),
    ] {
        check(expected, |run| {
            inject(run, "silent name server", "SilentNameServer", true);
            last_fault(run)["watched"] = json!([40 * SECOND, 60 * SECOND]);
            for number in 0..20 {
                let operation = Operation::order("bob", 100 + number);
                let id = format!("ord_b{number}");
                let outcome = json!({
                    "id": id, "version": 1, "note": operation.body["note"],
                    "amount": operation.body["amount"],
                });
                let stored = response(201, "stored", &outcome);
                run.repeat_at(&operation, "ok", stored, 45 * SECOND);
                run.push("orders", outcome.clone());
                run.deliver("order.created", &id, &outcome);
                accept(run, &format!("ev_{id}"));
                let feed = run.lines.get_mut("feed.jsonl").unwrap();
                let arrived = feed.iter_mut().rfind(|it| it["what"] == "arrived").unwrap();
                let wait = if number < late {
                    waits * SECOND
                } else {
                    SECOND / 10
                };
                arrived["at"] = json!(45 * SECOND + wait);
            }
        });
    }
}

#[test]
fn an_unresolved_destination_may_have_unfinished_deliveries() {
    check(&[], |run| {
        let row = json!({ "destination": "unresolved-1-0", "state": "retrying" });
        run.push("unfinished", row);
    });
}

#[test]
fn an_attempt_before_retry_after_is_found() {
    for (again, expected) in [(51, &[12][..]), (52, &[])] {
        check(expected, |run| {
            remove(run, "hook.jsonl", "ev_rf_1");
            run.arrive("hook.jsonl", "ev_rf_1", "busy", 50 * SECOND, None);
            let (hook, body) = ("hook.jsonl", refunded());
            run.arrive(hook, "ev_rf_1", "normal", again * SECOND, Some(&body));
        });
    }
}

#[test]
fn a_redirect_that_was_followed_is_found() {
    check(&[12], |run| {
        run.add("feed.jsonl", json!({ "what": "redirected" }));
    });
}

#[test]
fn an_operation_without_a_final_response_is_found() {
    check(&[13], |run| {
        let operation = Operation::signup("alice", 8);
        run.repeat(&operation, "info", Value::Null);
    });
}

#[test]
fn a_backlog_that_does_not_drain_is_found() {
    check(&[13], |run| run.run["drained_ms"] = json!(1_000_000));
}

#[test]
fn growing_memory_is_found() {
    for (step, expected) in [(4, &[14][..]), (1, &[])] {
        check(expected, |run| {
            for sample in 1..=30 {
                let bytes = (40 + sample * step) << 20;
                measure(run, &json!({ "shop-0": bytes }), &json!({}));
            }
        });
    }
}

#[test]
fn too_much_memory_or_wal_is_found() {
    check(&[14], |run| {
        measure(run, &json!({ "shop-0": 900 << 20 }), &json!({ "wal": 1 }));
    });
    check(&[14], |run| {
        measure(run, &json!({}), &json!({ "wal": 900 << 20 }));
    });
}

#[test]
fn keys_that_are_never_deleted_are_found() {
    // Nine operations of clients and five of the operator, or none that is recent enough.
    for (quiet_from, most) in [(90, 65), (300, 50)] {
        for (count, expected) in [(most, &[][..]), (most + 1, &[14])] {
            check(expected, |run| {
                run.run["quiet_from"] = json!(quiet_from * SECOND);
                run.rows["keys"] = json!([{ "count": count }]);
            });
        }
    }
}

/// The last fault of the run.
fn last_fault(run: &mut Sample) -> &mut Value {
    let faults = run.lines.get_mut("faults.jsonl").expect("there are lines");
    faults.last_mut().expect("there is a fault")
}
