//! Each violation is planted in a sound run, and found, and nothing else is.

use serde_json::{Value, json};

use super::{
    sample::{RECEIVERS, SECOND, Sample, answer},
    violations,
};
use crate::clients::Wish;

#[test]
fn nothing_is_found_in_a_sound_run() {
    check(&[], |_| {});
}

#[test]
fn a_key_that_ran_again_is_found() {
    check(&[1], |run| {
        let again = answer(201, "stored", &json!({ "id": "ch_1" }));
        run.ask(&Wish::payment("alice", 2), false, "ok", again);
    });
}

#[test]
fn a_second_effect_of_a_key_is_found() {
    check(&[1, 6], |run| {
        let again = json!({ "id": "ord_2", "note": "alice/0", "amount": 1000, "version": 1 });
        push(run, "orders", again);
    });
    check(&[1], |run| {
        run.rows["orders"][0]["version"] = json!(3);
        run.deliver(
            "order.updated",
            "ord_1/3",
            &json!({ "id": "ord_1", "version": 3 }),
        );
    });
}

#[test]
fn retries_beyond_their_budget_are_found() {
    let asked = |run: &mut Sample, id: String, at: u64, after: Option<u64>| {
        let line = json!({
            "what": "asked", "id": id, "who": "thrifty", "at": at, "retry_after": after,
        });
        run.add("counter.jsonl", line);
    };
    // Five at once, and what ten seconds pay in.
    check(&[], |run| {
        (0..10).for_each(|number| asked(run, "k".to_owned(), SECOND * number, None));
    });
    check(&[12], |run| {
        (0..40).for_each(|number| asked(run, "k".to_owned(), SECOND * number / 10, None));
    });
    check(&[12], |run| {
        asked(run, "k".to_owned(), SECOND, Some(1));
        asked(run, "k".to_owned(), SECOND + SECOND / 2, None);
    });
}

#[test]
fn an_effect_that_nobody_asked_for_is_found() {
    check(&[1], |run| {
        push(
            run,
            "messages",
            json!({ "charge_id": "ch_x", "amount": 10 }),
        );
    });
}

#[test]
fn a_granted_effect_that_is_lost_is_found() {
    check(&[2], |run| run.rows["messages"] = json!([]));
    check(&[1, 2, 5], |run| {
        run.rows["orders"][0]["version"] = json!(1);
    });
}

#[test]
fn a_refused_effect_that_is_there_is_found() {
    check(&[2], |run| {
        let wish = Wish::message("alice", 7);
        push(
            run,
            "messages",
            json!({ "charge_id": "ch_alice_7", "amount": 1070 }),
        );
        run.ask(&wish, false, "fail", answer(200, "stored", &Value::Null));
    });
}

#[test]
fn an_answer_that_nothing_explains_is_found() {
    check(&[2], |run| {
        let wish = Wish::signup("alice", 8);
        run.ask(&wish, false, "fail", answer(404, "", &Value::Null));
    });
}

#[test]
fn a_checkout_may_fail_for_what_was_done_to_its_provider_and_for_nothing_else() {
    for (why, expected) in [("absent: it lost every call", &[][..]), ("tired", &[2])] {
        check(expected, |run| {
            push(run, "sagas", json!({ "id": "chk_9", "state": "failed" }));
            run.deliver(
                "checkout.failed",
                "chk_9",
                &json!({ "checkout_id": "chk_9" }),
            );
            let told = json!({ "code": "CONFLICT.checkout.failed", "detail": why });
            let wish = Wish::checkout("alice", 9, true);
            run.ask(&wish, false, "fail", answer(409, "stored", &told));
        });
    }
}

#[test]
fn a_replay_that_differs_in_a_byte_is_found() {
    check(&[3], |run| {
        let other = json!({ "id": "ch_1", "more": 1 });
        run.ask(
            &Wish::payment("alice", 2),
            false,
            "ok",
            answer(201, "replayed", &other),
        );
    });
}

#[test]
fn another_request_that_was_taken_is_found() {
    let altered = Wish::payment("alice", 2)
        .altered()
        .expect("it has an amount");
    check(&[4], |run| {
        run.ask(
            &altered,
            true,
            "ok",
            answer(201, "replayed", &json!({ "id": "ch_1" })),
        );
    });
    check(&[4], |run| {
        let odd = json!({ "kind": "charge", "id": "ch_2", "amount": 1021 });
        run.add("payment.jsonl", json!({ "status": 201, "object": odd }));
    });
}

#[test]
fn an_event_without_an_effect_is_found() {
    check(&[5, 6], |run| {
        run.deliver("user.signed_up", "usr_9", &json!({ "user_id": "usr_9" }));
    });
    check(&[5], |run| {
        let body = json!({ "type": "refund.succeeded", "data": { "refund_id": "rf_1" } });
        run.arrive(
            "hook.jsonl",
            "ev_twin",
            "kind",
            SECOND,
            Some(&body.to_string()),
        );
    });
}

#[test]
fn an_event_that_never_came_is_found() {
    for file in RECEIVERS {
        check(&[6], |run| remove(run, file, "ev_rf_1"));
    }
    check(&[6], |run| {
        let far = run.rows["far"].as_array_mut().unwrap();
        far.retain(|row| row["event_id"] != "ev_rf_1");
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
fn a_delivery_that_was_refused_or_changed_is_found() {
    check(&[6], |run| {
        run.add(
            "hook.jsonl",
            json!({ "what": "refused", "why": "no signature" }),
        );
    });
    check(&[6, 7], |run| {
        run.arrive("hook.jsonl", "ev_rf_1", "kind", 40 * SECOND, None);
        let last = run.lines.get_mut("hook.jsonl").unwrap().last_mut().unwrap();
        last["sha"] = json!("other");
    });
}

#[test]
fn a_duplicate_is_explained_by_a_fault_of_its_carrier_that_lies_close() {
    for (file, at, again, found) in [
        // The kills are at 20 s.
        ("hook.jsonl", 17, 22, false),
        ("feed.jsonl", 23, 24, false),
        ("stream.jsonl", 23, 24, false),
        ("stream.jsonl", 40, 41, true),
        ("hook.jsonl", 10, 22, true),
        ("hook.jsonl", 40, 41, true),
    ] {
        let expected: &[usize] = if found { &[7] } else { &[] };
        check(expected, |run| {
            remove(run, file, "ev_rf_1");
            let body = json!({ "type": "refund.succeeded", "data": { "refund_id": "rf_1" } });
            run.arrive(
                file,
                "ev_rf_1",
                "kind",
                at * SECOND,
                Some(&body.to_string()),
            );
            run.arrive(file, "ev_rf_1", "kind", again * SECOND, None);
        });
    }
}

#[test]
fn a_replay_explains_what_it_was_asked_for() {
    for (first, found) in [(36, false), (33, true)] {
        let expected: &[usize] = if found { &[7] } else { &[] };
        check(expected, |run| {
            let (from, until) = (40 * SECOND, 41 * SECOND);
            run.add(
                "faults.jsonl",
                json!({ "blow": "replay", "how": "Replay", "bit": true, "from": from, "until": until }),
            );
            remove(run, "feed.jsonl", "ev_rf_1");
            let body = json!({ "type": "refund.succeeded", "data": { "refund_id": "rf_1" } });
            let (feed, body) = ("feed.jsonl", body.to_string());
            run.arrive(feed, "ev_rf_1", "kind", first * SECOND, Some(&body));
            run.arrive(feed, "ev_rf_1", "kind", 44 * SECOND, None);
        });
    }
}

#[test]
fn a_fault_of_somebody_else_explains_no_duplicate() {
    check(&[7], |run| {
        let faults = run.lines.get_mut("faults.jsonl").unwrap();
        faults.retain(|line| line["how"] != "Kill(Relay(0), 0ns)");
        run.arrive("feed.jsonl", "ev_rf_1", "kind", 19 * SECOND, None);
        run.arrive("feed.jsonl", "ev_rf_1", "kind", 20 * SECOND, None);
    });
}

#[test]
fn a_lost_answer_explains_a_duplicate() {
    check(&[], |run| {
        remove(run, "hook.jsonl", "ev_rf_1");
        let body = json!({ "type": "refund.succeeded", "data": { "refund_id": "rf_1" } });
        run.arrive(
            "hook.jsonl",
            "ev_rf_1",
            "lost",
            50 * SECOND,
            Some(&body.to_string()),
        );
        run.arrive("hook.jsonl", "ev_rf_1", "kind", 51 * SECOND, None);
    });
}

#[test]
fn a_second_effect_of_a_message_is_found() {
    check(&[8], |run| {
        let again = run.rows["messages"][0].clone();
        push(run, "messages", again);
    });
    check(&[8], |run| {
        let again = run.rows["far"][0].clone();
        push(run, "far", again);
    });
}

#[test]
fn an_inversion_is_found() {
    check(&[9], |run| {
        let far = run.rows["far"].as_array_mut().unwrap();
        far.swap(0, 1);
    });
    for file in ["feed.jsonl", "stream.jsonl"] {
        check(&[9], |run| {
            run.lines.get_mut(file).unwrap().swap(0, 1);
        });
    }
}

#[test]
fn money_that_moved_twice_or_for_nothing_is_found() {
    for kind in ["charge", "capture", "authorization"] {
        check(&[11], |run| {
            let again = json!({ "kind": kind, "id": "x", "amount": 1020 });
            run.add("payment.jsonl", json!({ "status": 201, "object": again }));
        });
    }
    check(&[11], |run| {
        let again = json!({ "kind": "refund", "charge": "ch_1", "amount": 10 });
        run.add("payment.jsonl", json!({ "status": 201, "object": again }));
    });
    check(&[11], |run| {
        run.add(
            "shipping.jsonl",
            json!({ "status": 201, "object": { "kind": "cancellation" } }),
        );
    });
    check(&[6, 11], |run| {
        run.rows["sagas"][0]["state"] = json!("needs_attention");
        for file in RECEIVERS {
            remove(run, file, "ev_chk_1");
        }
        let far = run.rows["far"].as_array_mut().unwrap();
        far.retain(|row| row["event_id"] != "ev_chk_1");
        push(
            run,
            "unfinished",
            json!({ "destination": "hook", "state": "retrying" }),
        );
    });
}

#[test]
fn a_checkout_that_was_started_twice_is_found() {
    check(&[1, 6, 11], |run| {
        push(run, "sagas", json!({ "id": "chk_2", "state": "completed" }));
    });
}

#[test]
fn an_attempt_before_its_time_is_found() {
    for (again, expected) in [(51, &[12][..]), (52, &[])] {
        check(expected, |run| {
            remove(run, "hook.jsonl", "ev_rf_1");
            let body = json!({ "type": "refund.succeeded", "data": { "refund_id": "rf_1" } });
            run.arrive("hook.jsonl", "ev_rf_1", "busy", 50 * SECOND, None);
            run.arrive(
                "hook.jsonl",
                "ev_rf_1",
                "kind",
                again * SECOND,
                Some(&body.to_string()),
            );
        });
    }
}

#[test]
fn a_redirect_that_was_followed_is_found() {
    check(&[12], |run| {
        run.add("feed.jsonl", json!({ "what": "strayed" }));
    });
}

#[test]
fn a_request_without_an_answer_is_found() {
    check(&[13], |run| {
        let wish = Wish::signup("alice", 8);
        run.ask(&wish, false, "info", Value::Null);
    });
}

#[test]
fn a_backlog_that_does_not_drain_is_found() {
    check(&[13], |run| run.run["drained_ms"] = json!(1_000_000));
}

#[test]
fn what_a_fenced_owner_has_written_is_found() {
    for (fenced, expected) in [(0, &[][..]), (1, &[10])] {
        check(expected, |run| {
            run.add(
                "sizes.jsonl",
                json!({ "resident": {}, "disk": { "fenced": fenced } }),
            );
        });
    }
}

#[test]
fn a_memory_that_creeps_is_found() {
    for (step, expected) in [(4, &[14][..]), (1, &[])] {
        check(expected, |run| {
            for look in 1..=30 {
                let bytes = (40 + look * step) << 20;
                run.add(
                    "sizes.jsonl",
                    json!({ "resident": { "shop-0": bytes }, "disk": {} }),
                );
            }
        });
    }
}

#[test]
fn growth_is_found() {
    check(&[14], |run| {
        run.add(
            "sizes.jsonl",
            json!({ "resident": { "shop-0": 900 << 20 }, "disk": { "wal": 1 } }),
        );
    });
    check(&[14], |run| {
        run.add(
            "sizes.jsonl",
            json!({ "resident": {}, "disk": { "wal": 900 << 20 } }),
        );
    });
}

/// Plants something in a sound run, and finds that exactly these invariants are broken.
#[track_caller]
fn check(expected: &[usize], plant: impl FnOnce(&mut Sample)) {
    let mut run = Sample::sound();
    plant(&mut run);
    let found = violations(&run.evidence());
    let mut broken: Vec<_> = found.iter().map(|it| it.of).collect();
    broken.sort_unstable();
    broken.dedup();
    assert_eq!(broken, expected, "{found:?}");
}

fn push(run: &mut Sample, table: &str, row: Value) {
    run.rows[table]
        .as_array_mut()
        .expect("it is a list")
        .push(row);
}

/// Takes every line about an event out of a receiver's ledger.
fn remove(run: &mut Sample, file: &'static str, id: &str) {
    let lines = run.lines.get_mut(file).expect("there are lines");
    lines.retain(|line| line["id"] != id || line["what"] != "arrived");
}
