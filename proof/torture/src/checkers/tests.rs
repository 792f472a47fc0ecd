//! Tests of the checkers: each violation is added to a sample run, and exactly this violation is
//! found.

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
fn a_restore_explains_duplicates_of_earlier_deliveries_for_a_minute() {
    // The backup is taken at 40 s, and replaces the database at 41 s.
    for (first, again, found) in [
        (30, 45, false),
        (43, 50, false),
        (45, 46, true),
        (30, 39, true),
    ] {
        let expected: &[usize] = if found { &[7] } else { &[] };
        check(expected, |run| {
            inject(run, "restore", "Restore", true);
            repeat(run, "feed.jsonl", first, again);
        });
    }
}

#[test]
fn a_duplicate_node_explains_no_duplicate_delivery() {
    check(&[7], |run| {
        inject(run, "duplicate node", "DuplicateNode(Relay(0), 1s)", true);
        repeat(run, "feed.jsonl", 40, 41);
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
fn a_duplicate_of_a_held_event_is_explained_only_by_the_kill() {
    for (kind, expected) in [("kill during delivery", &[][..]), ("duplicate node", &[7])] {
        check(expected, |run| {
            inject(run, kind, "KillDelivering", true);
            repeat_after(run, "hook.jsonl", "held", 40, 41);
        });
    }
}

#[test]
fn a_capture_of_another_amount_is_found() {
    check(&[11], |run| {
        let payment = run.lines.get_mut("payment.jsonl").unwrap();
        let capture = payment
            .iter_mut()
            .find(|it| it["object"]["kind"] == "capture");
        capture.unwrap()["object"]["amount"] = json!(600);
    });
}

#[test]
fn a_checkout_may_fail_only_because_its_provider_never_got_the_call() {
    for (why, expected) in [("absent: it lost every call", &[][..]), ("tired", &[2])] {
        check(expected, |run| {
            run.push("sagas", json!({ "id": "chk_9", "state": "failed" }));
            let data = json!({ "checkout_id": "chk_9" });
            run.deliver("checkout.failed", "chk_9", &data);
            let outcome = json!({ "code": "CONFLICT.checkout.failed", "detail": why });
            let operation = Operation::checkout("alice", 9, true);
            run.repeat(&operation, "fail", response(409, "stored", &outcome));
        });
    }
}

#[test]
fn an_accepted_checkout_may_fail_because_of_its_provider_or_its_address() {
    for (is_shippable, why, expected) in [
        (true, "absent", &[][..]),
        (true, "undeliverable", &[2]),
        (false, "undeliverable", &[]),
    ] {
        check(expected, |run| {
            let row = json!({ "id": "chk_9", "state": "failed", "reason_code": why });
            run.push("sagas", row);
            let outcome = json!({ "checkout_id": "chk_9" });
            run.deliver("checkout.failed", "chk_9", &outcome);
            let operation = Operation::checkout("alice", 9, is_shippable);
            let accepted = response(202, "stored", &json!({ "id": "chk_9" }));
            run.repeat(&operation, "ok", accepted);
        });
    }
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
fn a_duplicate_is_explained_by_a_close_fault_of_its_owner() {
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
            repeat(run, file, at, again);
        });
    }
}

#[test]
fn a_replay_explains_the_events_of_its_window() {
    // The replay is requested at 40 s, and its command ends at 41 s.
    for (first, found) in [(33, true), (36, false), (43, false), (45, true)] {
        let expected: &[usize] = if found { &[7] } else { &[] };
        check(expected, |run| {
            inject(run, "replay", "Replay", true);
            repeat(run, "feed.jsonl", first, 46);
        });
    }
}

#[test]
fn a_fault_of_another_process_explains_no_duplicate() {
    check(&[7], |run| {
        let faults = run.lines.get_mut("faults.jsonl").unwrap();
        faults.retain(|line| line["injection"] != "Kill(Relay(0), 0ns)");
        run.arrive("feed.jsonl", "ev_rf_1", "normal", 19 * SECOND, None);
        run.arrive("feed.jsonl", "ev_rf_1", "normal", 20 * SECOND, None);
    });
}

#[test]
fn a_fault_that_took_no_effect_explains_duplicates_only_if_it_does_harm_anyway() {
    for (kind, injection, is_harmful) in [
        ("full disk", "Full(1s)", false),
        ("connection limit", "ConnectionLimit(1s)", false),
        (
            "failpoint",
            r#"Failpoint(Shop(0), "thumbnails.after:1")"#,
            true,
        ),
        ("pause", "Pause(Shop(0), 1s)", true),
        ("network", "Network(Receiver(0), BlackHole, 1s)", true),
        (
            "commit request lost",
            "Commit(Database(0), CutBefore)",
            true,
        ),
    ] {
        for took_effect in [false, true] {
            let expected: &[usize] = if took_effect || is_harmful { &[] } else { &[7] };
            check(expected, |run| {
                inject(run, kind, injection, took_effect);
                repeat(run, "hook.jsonl", 40, 41);
            });
        }
    }
}

#[test]
fn a_lock_explains_duplicates_of_the_processes_that_use_that_table() {
    for (injection, file, found) in [
        (r#"Lock("shop_order", 1s)"#, "hook.jsonl", false),
        (r#"Lock("shop_order", 1s)"#, "feed.jsonl", true),
        (r#"Lock("shop_order", 1s)"#, "stream.jsonl", true),
        (r#"Lock("hapax.idempotency_key", 1s)"#, "feed.jsonl", false),
    ] {
        let expected: &[usize] = if found { &[7] } else { &[] };
        check(expected, |run| {
            inject(run, "lock", injection, true);
            repeat(run, file, 40, 41);
        });
    }
}

#[test]
fn a_duplicate_mail_without_an_explanation_is_found() {
    for (mode, first, again, found) in [
        ("normal", 5, 40, true),
        ("normal", 40, 41, true),
        // The kills are at 20 s.
        ("normal", 19, 22, false),
        ("connection cut", 40, 41, false),
        ("temporary failure", 40, 41, false),
    ] {
        let expected: &[usize] = if found { &[7] } else { &[] };
        check(expected, |run| {
            run.lines.remove("mail.jsonl");
            for (mode, at) in [(mode, first), ("normal", again)] {
                let mail = json!({
                    "what": "mail", "id": "<usr_1>", "at": at * SECOND, "mode": mode,
                    "to": ["n4@alice.example"],
                });
                run.add("mail.jsonl", mail);
            }
        });
    }
    // There is no proxy before the mailbox, and faults of other receivers do not concern it.
    for (kind, injection, found) in [
        ("kill", "Kill(Remote(2), 0ns)", false),
        ("kill", "Kill(Remote(1), 0ns)", true),
        ("network", "Network(Receiver(0), BlackHole, 1s)", true),
        ("network", "Network(Database(0), BlackHole, 1s)", false),
        ("network", "Network(RelayDatabase, BlackHole, 1s)", true),
    ] {
        let expected: &[usize] = if found { &[7] } else { &[] };
        check(expected, |run| {
            inject(run, kind, injection, true);
            let mail = run.lines["mail.jsonl"][0].clone();
            for at in [40, 41] {
                let mut again = mail.clone();
                again["id"] = json!("<usr_1/2>");
                again["at"] = json!(at * SECOND);
                run.add("mail.jsonl", again);
            }
        });
    }
}

#[test]
fn a_lost_response_explains_a_duplicate() {
    check(&[], |run| {
        repeat_after(run, "hook.jsonl", "response lost", 50, 51);
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
fn money_that_moved_twice_or_without_a_reason_is_found() {
    for kind in ["charge", "capture", "authorization"] {
        check(&[11], |run| {
            let again = json!({ "kind": kind, "id": "x", "amount": 1020 });
            provide(run, "payment.jsonl", &again);
        });
    }
    check(&[11], |run| {
        let again = json!({ "kind": "refund", "charge": "ch_1", "amount": 10 });
        provide(run, "payment.jsonl", &again);
    });
    check(&[11], |run| {
        provide(run, "shipping.jsonl", &json!({ "kind": "cancellation" }));
    });
    check(&[6, 11], |run| {
        run.rows["sagas"][0]["state"] = json!("needs_attention");
        for file in RECEIVERS {
            remove(run, file, "ev_chk_1");
        }
        let remote = run.rows["remote"].as_array_mut().unwrap();
        remote.retain(|row| row["event_id"] != "ev_chk_1");
        let row = json!({ "destination": "hook", "state": "retrying" });
        run.push("unfinished", row);
    });
}

#[test]
fn reserved_stock_without_a_checkout_is_found() {
    check(&[11], |run| run.rows["stock"][0]["reserved"] = json!(1));
    for reserved in [0, 2] {
        check(&[11], |run| {
            run.rows["stock"][1]["reserved"] = json!(reserved);
        });
    }
}

#[test]
fn an_entry_of_the_ledger_that_is_missing_or_there_twice_is_found() {
    for at in 0..3 {
        check(&[11], |run| {
            run.rows["ledger"].as_array_mut().unwrap().remove(at);
        });
        check(&[11], |run| {
            let again = run.rows["ledger"][at].clone();
            run.push("ledger", again);
        });
    }
    check(&[11], |run| run.rows["ledger"][1]["amount"] = json!(530));
    // A reservation alone has no entry in the ledger.
    check(&[11], |run| {
        run.rows["refunds"][0]["state"] = json!("pending");
    });
    check(&[], |run| run.rows["refunds"][0]["state"] = json!("done"));
}

#[test]
fn a_webhook_about_a_refund_that_had_an_effect_or_was_rejected_is_found() {
    let refund = json!({ "id": "rf_1", "charge_id": "ch_1", "amount": 520 });
    let notice = Operation::notice("alice", 15, &refund);
    let repeat = |run: &mut Sample, status: u16| {
        let outcome = json!({ "code": "CONFLICT.refund.differs" });
        run.repeat(&notice, "ok", response(status, "", &outcome));
    };
    check(&[], |run| repeat(run, 200));
    check(&[2], |run| repeat(run, 409));
    check(&[11], |run| {
        repeat(run, 200);
        let again = json!({ "kind": "refund", "charge_id": "ch_1", "amount": 520 });
        run.push("ledger", again);
    });
}

#[test]
fn a_checkout_that_was_started_twice_is_found() {
    check(&[1, 6, 11], |run| {
        run.push("sagas", json!({ "id": "chk_2", "state": "completed" }));
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
fn a_checkpoint_of_a_fenced_owner_is_found() {
    for (fenced, expected) in [(0, &[][..]), (1, &[10])] {
        check(expected, |run| {
            measure(run, &json!({}), &json!({ "fenced": fenced }));
        });
    }
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

/// Has an event arrive at a receiver at these seconds, and at no other time.
fn repeat(run: &mut Sample, file: &'static str, first: u64, again: u64) {
    repeat_after(run, file, "normal", first, again);
}

/// The same, in this mode the first time.
fn repeat_after(run: &mut Sample, file: &'static str, mode: &str, first: u64, again: u64) {
    remove(run, file, "ev_rf_1");
    run.arrive(file, "ev_rf_1", mode, first * SECOND, Some(&refunded()));
    run.arrive(file, "ev_rf_1", "normal", again * SECOND, None);
}

/// The body of the event `ev_rf_1`.
fn refunded() -> String {
    json!({ "type": "refund.succeeded", "data": { "refund_id": "rf_1" } }).to_string()
}

/// The feed accepts an event.
fn accept(run: &mut Sample, id: &str) {
    run.add("feed.jsonl", json!({ "what": "accepted", "id": id }));
}

/// The last fault of the run.
fn last_fault(run: &mut Sample) -> &mut Value {
    let faults = run.lines.get_mut("faults.jsonl").expect("there are lines");
    faults.last_mut().expect("there is a fault")
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
