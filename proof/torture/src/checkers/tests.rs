//! Tests of the checkers: each violation is added to a sample run, and exactly this violation is
//! found.

mod duplicates;
mod money;
mod bounds;
mod conflicts;

use serde_json::{Value, json};

use super::{
    sample::{RECEIVERS, SECOND, Sample, listed, response},
    violations,
};
use crate::{
    clients::Operation,
    fault_coverage::{coverage, kills, missing},
};

#[test]
fn a_run_without_violations_has_none() {
    check(&[], |_| {});
}

#[test]
fn a_key_that_ran_again_is_found() {
    check(&[1], |run| {
        let again = response(201, "stored", &json!({ "id": "ch_1" }));
        run.repeat(&Operation::payment("alice", 2), "ok", again);
    });
}

#[test]
fn a_second_effect_of_a_key_is_found() {
    check(&[1, 6], |run| {
        let again = json!({ "id": "ord_8", "note": "alice/0", "amount": 1000, "version": 1 });
        run.push("orders", again);
    });
    check(&[1], |run| {
        run.rows["orders"][0]["version"] = json!(3);
        let data = json!({ "id": "ord_1", "version": 3 });
        run.deliver("order.updated", "ord_1/3", &data);
    });
}

#[test]
fn an_unrequested_effect_is_found() {
    check(&[1], |run| {
        let row = json!({ "charge_id": "ch_x", "amount": 10 });
        run.push("messages", row);
    });
}

#[test]
fn an_acknowledged_effect_that_is_lost_is_found() {
    check(&[2], |run| run.rows["messages"] = json!([]));
    check(&[1, 2, 5], |run| {
        run.rows["orders"][0]["version"] = json!(1);
    });
}

#[test]
fn a_note_that_differs_from_the_outcome_of_its_commit_is_found() {
    check(&[2, 5], |run| run.rows["notes"] = json!([]));
    check(&[2, 6], |run| {
        run.push("notes", json!({ "id": "note-1" }));
    });
    // The outcome of the third commit is unknown: the note may exist, with its event.
    check(&[], |run| {
        run.push("notes", json!({ "id": "note-2" }));
        run.deliver("note.written", "note-2", &json!({ "id": "note-2" }));
    });
    check(&[5], |run| {
        run.deliver("note.written", "note-2", &json!({ "id": "note-2" }));
    });
    check(&[1, 6], |run| {
        run.push("notes", json!({ "id": "note-3" }));
    });
}

#[test]
fn an_upload_without_its_file_or_its_thumbnails_is_found() {
    check(&[2], |run| run.rows["uploads"][0]["kept"] = Value::Null);
    check(&[2], |run| run.rows["uploads"][0]["content"] = json!(1));
    check(&[8], |run| {
        run.rows["uploads"][0]["state"] = json!("pending");
    });
    check(&[8], |run| {
        run.rows["uploads"][0]["thumbnails"] = json!(1);
    });
    check(&[2, 5], |run| run.rows["uploads"] = json!([]));
}

#[test]
fn a_message_that_was_mistaken_for_one_of_another_source_is_found() {
    // It had no effect, though it was acknowledged.
    check(&[8], |run| run.rows["market"] = json!([]));
    // It was rejected because of the message of the other source with its id.
    check(&[8], |run| {
        let message = Operation::message("bob", 5);
        let outcome = json!({ "code": "CONFLICT.inbox.payload_mismatch" });
        let operation = Operation::market("bob", 14, &message);
        run.repeat(&operation, "fail", response(409, "", &outcome));
    });
    check(&[8], |run| {
        let again = run.rows["market"][0].clone();
        run.push("market", again);
    });
}

#[test]
fn an_old_response_after_a_key_was_deleted_is_found() {
    let purged = Operation::order("alice", 31);
    for (node, at, id, expected) in [
        // The other shops learn of a purge within a second.
        ("shop-1", 11_500, "ord_2", &[][..]),
        ("shop-1", 12_500, "ord_2", &[3]),
        ("shop-0", 14_000, "ord_2", &[3]),
        // Two shops have different responses.
        ("shop-1", 14_000, "ord_9", &[3]),
        ("shop-1", 14_000, "ord_3", &[]),
    ] {
        check(expected, |run| {
            let outcome = response(201, "replayed", &json!({ "id": id }));
            let index = run.lines["operator.jsonl"].len();
            run.operator_line_at(node, "requested", &purged, at * (SECOND / 1_000), &outcome);
            // The ledger is in the order of time.
            let lines = run.lines.get_mut("operator.jsonl").unwrap();
            let line = lines.remove(index);
            let later = lines
                .iter()
                .position(|it| it["at"].as_u64() > line["at"].as_u64());
            lines.insert(later.unwrap_or(index), line);
        });
    }
}

#[test]
fn more_effects_of_a_deleted_key_than_its_purges_explain_are_found() {
    let order = |id: &str| {
        let operation = Operation::order("alice", 31);
        json!({ "id": id, "note": operation.body["note"], "amount": 1310, "version": 1 })
    };
    check(&[1], |run| {
        run.push("orders", order("ord_9"));
        let data = json!({ "id": "ord_9", "version": 1 });
        run.deliver("order.created", "ord_9", &data);
        accept(run, "ev_ord_9");
    });
    check(&[2, 5], |run| {
        let orders = run.rows["orders"].as_array_mut().unwrap();
        orders.retain(|row| row["id"] != "ord_2" && row["id"] != "ord_3");
    });
    // A payment at two shops at once must be executed once.
    check(&[11], |run| {
        let amount = Operation::payment("alice", 63).body["amount"].clone();
        let again = json!({ "kind": "charge", "id": "ch_2", "amount": amount });
        provide(run, "payment.jsonl", &again);
    });
}

#[test]
fn only_events_of_orders_that_a_restore_removed_may_lack_their_rows() {
    // The forfeited order may have reached every receiver. So may an order acknowledged just before
    // the backup, but only if its row exists.
    check(&[5], |run| {
        let data = json!({ "id": "ord_9", "version": 1 });
        run.deliver("order.created", "ord_9", &data);
        accept(run, "ev_ord_9");
    });
    // Events that are committed after the restore must arrive.
    check(&[6], |run| {
        inject(run, "restore", "Restore", true);
        remove(run, "feed.jsonl", "ev_rf_1");
    });
}

#[test]
fn the_segments_of_a_history_are_read_as_one() {
    let mut run = Sample::sound();
    let lines = run.lines.remove("clients-0.jsonl").unwrap();
    let (first, second) = lines.split_at(lines.len() / 2 + 1);
    run.lines.insert("clients-0.jsonl", first.to_vec());
    let memory =
        json!({ "type": "memory", "operations": [], "count": 4, "next": 4, "processes": 9 });
    let second = std::iter::once(memory).chain(second.iter().cloned());
    run.lines.insert("clients-0.1.jsonl", second.collect());
    let artifacts = run.artifacts();
    assert_eq!(violations(&artifacts), []);
    let attempts = artifacts.operations.iter().map(|it| it.attempts.len());
    assert_eq!(attempts.sum::<usize>() * 2, lines.len());
}

#[test]
fn a_rejected_effect_that_exists_is_found() {
    check(&[2], |run| {
        let operation = Operation::message("alice", 7);
        let row = json!({ "charge_id": "ch_alice_7", "amount": 1070 });
        run.push("messages", row);
        run.repeat(&operation, "fail", response(200, "stored", &Value::Null));
    });
}

#[test]
fn a_response_without_an_explanation_is_found() {
    check(&[2], |run| {
        let operation = Operation::signup("alice", 8);
        run.repeat(&operation, "fail", response(404, "", &Value::Null));
    });
}

#[test]
fn a_failure_that_no_kill_causes_is_found() {
    let failed = |run: &mut Sample, status: u64| {
        let mut failed = response(201, "", &Value::Null);
        (failed["status"], failed["final"]) = (json!(status), json!(false));
        run.repeat(&Operation::payment("alice", 2), "info", failed);
    };
    for status in [409, 503, 504] {
        check(&[], |run| failed(run, status));
    }
    check(&[2], |run| failed(run, 500));
    // Other faults may cause it.
    check(&[], |run| {
        inject(run, "full disk", "Full(1s)", true);
        failed(run, 500);
    });
}

#[test]
fn an_order_that_the_api_does_not_return_or_returns_with_other_content_is_found() {
    let changes: [fn(&mut Value); 7] = [
        |listed| drop(listed["orders"].as_array_mut().unwrap().remove(0)),
        |listed| listed["orders"][0]["tenant"] = json!("bob"),
        |listed| listed["read"]["ord_1"]["amount"] = json!(1),
        |listed| listed["orders"][0]["order"]["amount"] = json!(1),
        |listed| listed["read"]["ord_1"] = json!({ "status": 404 }),
        |listed| drop(listed["ledger"].as_array_mut().unwrap().remove(0)),
        |listed| listed["ledger"][0]["amount"] = json!(1),
    ];
    for change in changes {
        check(&[2], |run| {
            let mut listed = listed(&run.rows);
            change(&mut listed);
            run.listed = Some(listed);
        });
    }
}

#[test]
fn an_event_that_differs_from_the_response_is_found() {
    check(&[6], |run| {
        let hook = run.lines.get_mut("hook.jsonl").unwrap();
        let signed_up = hook.iter_mut().find(|it| it["id"] == "ev_usr_1").unwrap();
        let data = json!({ "user_id": "usr_1", "email": "somebody@else.example" });
        signed_up["body"] = json!({ "type": "user.signed_up", "data": data })
            .to_string()
            .into();
    });
}

#[test]
fn an_event_without_one_effect_at_the_demos_receiver_is_found() {
    let see = |run: &mut Sample, change: &dyn Fn(&mut Vec<Value>)| {
        let hook = run.lines["hook.jsonl"].iter();
        let seen = hook.map(|line| json!({ "event_id": line["id"], "effects": 1 }));
        let mut seen: Vec<_> = seen.collect();
        change(&mut seen);
        let mut listed = listed(&run.rows);
        listed["demo"] = json!(seen);
        run.listed = Some(listed);
    };
    for (effects, expected) in [(1, &[][..]), (0, &[6]), (2, &[8])] {
        check(expected, |run| {
            see(run, &|seen| seen[0]["effects"] = json!(effects));
        });
    }
    check(&[6], |run| see(run, &|seen| drop(seen.remove(0))));
    check(&[6], |run| {
        let unknown = json!({ "event_id": "ev_unknown", "effects": 1 });
        see(run, &|seen| seen.push(unknown.clone()));
    });
}

#[test]
fn a_replay_that_differs_in_a_byte_is_found() {
    check(&[3], |run| {
        let other = json!({ "id": "ch_1", "more": 1 });
        let replayed = response(201, "replayed", &other);
        run.repeat(&Operation::payment("alice", 2), "ok", replayed);
    });
}

#[test]
fn an_altered_request_that_was_executed_is_found() {
    let altered = Operation::payment("alice", 2)
        .altered()
        .expect("it has an amount");
    check(&[4], |run| {
        let outcome = response(201, "replayed", &json!({ "id": "ch_1" }));
        run.repeat_altered(&altered, "ok", outcome);
    });
    check(&[4], |run| {
        let altered = json!({ "kind": "charge", "id": "ch_2", "amount": 1021 });
        provide(run, "payment.jsonl", &altered);
    });
}

#[test]
fn an_event_without_an_effect_is_found() {
    check(&[5, 6], |run| {
        run.deliver("user.signed_up", "usr_9", &json!({ "user_id": "usr_9" }));
    });
    check(&[5], |run| {
        let body = refunded();
        run.arrive("hook.jsonl", "ev_twin", "normal", SECOND, Some(&body));
    });
}

#[test]
fn an_event_that_never_arrived_is_found() {
    for file in RECEIVERS {
        check(&[6], |run| remove(run, file, "ev_rf_1"));
    }
    check(&[6], |run| {
        let remote = run.rows["remote"].as_array_mut().unwrap();
        remote.retain(|row| row["event_id"] != "ev_rf_1");
    });
    check(&[6], |run| drop(run.lines.remove("mail.jsonl")));
}

#[test]
fn an_event_that_vanished_without_becoming_a_dead_letter_is_found() {
    check(&[6], |run| run.rows["unfinished"] = json!([]));
    check(&[6], |run| run.rows["unfinished"][0]["attempts"] = json!(0));
    check(&[6], |run| {
        run.rows["unfinished"][0]["destination"] = json!("feed");
    });
}

#[test]
fn a_delivery_with_an_invalid_signature_or_other_content_is_found() {
    check(&[6], |run| {
        run.add(
            "hook.jsonl",
            json!({ "what": "unverified", "why": "no signature" }),
        );
    });
    check(&[6, 7], |run| {
        run.arrive("hook.jsonl", "ev_rf_1", "normal", 40 * SECOND, None);
        let last = run.lines.get_mut("hook.jsonl").unwrap().last_mut().unwrap();
        last["sha"] = json!("other");
    });
}

#[test]
fn a_second_effect_of_a_message_is_found() {
    check(&[8], |run| {
        let again = run.rows["messages"][0].clone();
        run.push("messages", again);
    });
    check(&[8], |run| {
        let again = run.rows["remote"][0].clone();
        run.push("remote", again);
    });
}

#[test]
fn an_inversion_is_found() {
    check(&[9], |run| {
        let remote = run.rows["remote"].as_array_mut().unwrap();
        remote.swap(0, 1);
    });
    for file in ["feed.jsonl", "stream.jsonl"] {
        check(&[9], |run| {
            run.lines.get_mut(file).unwrap().swap(0, 1);
        });
    }
}

#[test]
fn a_checkpoint_of_a_fenced_owner_is_found() {
    for (fenced, expected) in [(0, &[][..]), (1, &[10])] {
        check(expected, |run| {
            measure(run, &json!({}), &json!({ "fenced": fenced }));
        });
    }
}

#[test]
fn a_sample_without_a_count_of_checkpoints_does_not_count() {
    for (disk, is_missing) in [
        (Value::Null, true),
        (json!({ "fenced": null }), true),
        (json!({ "fenced": 0 }), false),
    ] {
        let mut run = Sample::sound();
        measure(&mut run, &json!({}), &disk);
        let coverage = coverage(&run.artifacts());
        let never = missing(&coverage);
        let is_named = never.contains(&"samples of the checkpoint log");
        assert_eq!(is_named, is_missing, "{never:?}");
    }
}

#[test]
fn a_process_that_continues_after_a_failpoint_was_not_killed() {
    for (failpoint, times) in [
        ("saga.end.after:1", 1),
        ("saga.end.after:1:on purpose", 0),
        ("saga.end.after:1:wait", 0),
    ] {
        let mut run = Sample::sound();
        let before = kills(&run.artifacts());
        inject(
            &mut run,
            "failpoint",
            &format!("Failpoint(Shop(0), {failpoint:?})"),
            true,
        );
        assert_eq!(kills(&run.artifacts()), before + times, "{failpoint}");
    }
}

/// Plants a violation in the sample run, and checks that exactly these invariants are violated.
#[track_caller]
fn check(expected: &[usize], plant: impl FnOnce(&mut Sample)) {
    let mut run = Sample::sound();
    plant(&mut run);
    let found = violations(&run.artifacts());
    let mut broken: Vec<_> = found.iter().map(|it| it.of).collect();
    broken.sort_unstable();
    broken.dedup();
    assert_eq!(broken, expected, "{found:?}");
}

/// Removes every line about an event from a receiver's ledger.
fn remove(run: &mut Sample, file: &'static str, id: &str) {
    let lines = run.lines.get_mut(file).expect("there are lines");
    lines.retain(|line| line["id"] != id || line["what"] != "arrived");
}

/// A fault at 40 s that lasts one second.
fn inject(run: &mut Sample, kind: &str, injection: &str, took_effect: bool) {
    let (from, until) = (40 * SECOND, 41 * SECOND);
    let line = json!({
        "fault": kind, "injection": injection, "took_effect": took_effect, "from": from,
        "until": until,
    });
    run.add("faults.jsonl", line);
}

/// The body of the event `ev_rf_1`.
fn refunded() -> String {
    json!({ "type": "refund.succeeded", "data": { "refund_id": "rf_1" } }).to_string()
}

/// The feed accepts an event.
fn accept(run: &mut Sample, id: &str) {
    run.add("feed.jsonl", json!({ "what": "accepted", "id": id }));
}

/// Adds a measurement of memory and disk.
fn measure(run: &mut Sample, resident: &Value, disk: &Value) {
    let line = json!({ "resident": resident, "disk": disk });
    run.add("sizes.jsonl", line);
}

/// Adds an effect at a provider.
fn provide(run: &mut Sample, file: &'static str, object: &Value) {
    run.add(file, json!({ "status": 201, "object": object }));
}
