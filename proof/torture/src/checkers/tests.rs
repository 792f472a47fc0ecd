//! Tests of the checkers: each violation is added to a sample run, found, and nothing else is
//! found.

use serde_json::{Value, json};

use super::{
    sample::{RECEIVERS, SECOND, Sample, answer, listed},
    violations,
};
use crate::{
    clients::Operation,
    fault_coverage::{bites, kills, missing},
};

#[test]
fn nothing_is_found_in_a_sound_run() {
    check(&[], |_| {});
}

#[test]
fn a_key_that_ran_again_is_found() {
    check(&[1], |run| {
        let again = answer(201, "stored", &json!({ "id": "ch_1" }));
        run.ask(&Operation::payment("alice", 2), false, "ok", again);
    });
}

#[test]
fn a_second_effect_of_a_key_is_found() {
    check(&[1, 6], |run| {
        let again = json!({ "id": "ord_8", "note": "alice/0", "amount": 1000, "version": 1 });
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
fn an_unrequested_effect_is_found() {
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
fn a_note_that_is_there_against_the_word_of_its_commit_is_found() {
    check(&[2, 5], |run| run.rows["notes"] = json!([]));
    check(&[2, 6], |run| {
        push(run, "notes", json!({ "id": "note-1" }));
    });
    // Nobody knows how the third ended: it may be there, with its event.
    check(&[], |run| {
        push(run, "notes", json!({ "id": "note-2" }));
        run.deliver("note.written", "note-2", &json!({ "id": "note-2" }));
    });
    check(&[5], |run| {
        run.deliver("note.written", "note-2", &json!({ "id": "note-2" }));
    });
    check(&[1, 6], |run| {
        push(run, "notes", json!({ "id": "note-3" }));
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
fn a_message_that_was_taken_for_one_of_another_source_is_found() {
    // It had no effect, though it was acknowledged.
    check(&[8], |run| run.rows["market"] = json!([]));
    // It was refused, for what the other source had sent under its id.
    check(&[8], |run| {
        let message = Operation::message("bob", 5);
        let outcome = json!({ "code": "CONFLICT.inbox.payload_mismatch" });
        let operation = Operation::market("bob", 14, &message);
        run.ask(&operation, false, "fail", answer(409, "", &outcome));
    });
    check(&[8], |run| {
        let again = run.rows["market"][0].clone();
        push(run, "market", again);
    });
}

#[test]
fn an_old_response_after_a_key_was_deleted_is_found() {
    let purged = Operation::order("alice", 31);
    for (node, at, id, expected) in [
        // The others hear of a purge within a second.
        ("shop-1", 11_500, "ord_2", &[][..]),
        ("shop-1", 12_500, "ord_2", &[3]),
        ("shop-0", 14_000, "ord_2", &[3]),
        // Two shops are of two minds.
        ("shop-1", 14_000, "ord_9", &[3]),
        ("shop-1", 14_000, "ord_3", &[]),
    ] {
        check(expected, |run| {
            let outcome = answer(201, "replayed", &json!({ "id": id }));
            let place = run.lines["operator.jsonl"].len();
            run.operated_at(node, "asked", &purged, at * (SECOND / 1_000), &outcome);
            // The ledger is in the order of time.
            let lines = run.lines.get_mut("operator.jsonl").unwrap();
            let line = lines.remove(place);
            let later = lines
                .iter()
                .position(|it| it["at"].as_u64() > line["at"].as_u64());
            lines.insert(later.unwrap_or(place), line);
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
        run.deliver(
            "order.created",
            "ord_9",
            &json!({ "id": "ord_9", "version": 1 }),
        );
        run.add("feed.jsonl", json!({ "what": "picked", "id": "ev_ord_9" }));
    });
    check(&[2, 5], |run| {
        let orders = run.rows["orders"].as_array_mut().unwrap();
        orders.retain(|row| row["id"] != "ord_2" && row["id"] != "ord_3");
    });
    // A payment at two shops at once is one.
    check(&[11], |run| {
        let amount = Operation::payment("alice", 63).body["amount"].clone();
        let again = json!({ "kind": "charge", "id": "ch_2", "amount": amount });
        run.add("payment.jsonl", json!({ "status": 201, "object": again }));
    });
}

#[test]
fn what_a_restore_took_back_may_have_been_told_of_and_nothing_else_may() {
    // The forfeited order may have reached every receiver. So may an order acknowledged just before
    // the backup, but only if its row exists.
    check(&[5], |run| {
        run.deliver(
            "order.created",
            "ord_9",
            &json!({ "id": "ord_9", "version": 1 }),
        );
        run.add("feed.jsonl", json!({ "what": "picked", "id": "ev_ord_9" }));
    });
    // What is committed after it has to come.
    check(&[6], |run| {
        strike(run, "restore", "Restore", true);
        remove(run, "feed.jsonl", "ev_rf_1");
    });
}

#[test]
fn a_restore_explains_what_comes_again_behind_it_and_had_come_before() {
    // The backup is of 40 s, and has the place of the rows from 41 s on.
    for (first, again, found) in [
        (30, 45, false),
        (43, 50, false),
        (45, 46, true),
        (30, 39, true),
    ] {
        let expected: &[usize] = if found { &[7] } else { &[] };
        check(expected, |run| {
            strike(run, "restore", "Restore", true);
            repeat(run, "feed.jsonl", first, again);
        });
    }
}

#[test]
fn a_namesake_explains_no_duplicate() {
    check(&[7], |run| {
        strike(run, "double", "Double(Relay(0), 1s)", true);
        repeat(run, "feed.jsonl", 40, 41);
    });
}

#[test]
fn whoever_waits_beside_a_flood_and_what_a_flood_fills_is_found() {
    for (p99, peak, bit, expected) in [
        (1_000, 300 << 20, true, &[][..]),
        (1_001, 300 << 20, true, &[13]),
        (10, 500 << 20, true, &[14]),
        (9_000, 500 << 20, false, &[]),
    ] {
        check(expected, |run| {
            strike(run, "flood of members", "Flood(Members(0))", bit);
            let line = run
                .lines
                .get_mut("faults.jsonl")
                .unwrap()
                .last_mut()
                .unwrap();
            line["healthz_ms"] = json!({ "p99": p99 });
            line["peak"] = json!(peak);
        });
    }
}

#[test]
fn events_that_are_late_beside_a_destination_that_nobody_can_find_are_found() {
    for (late, waits, expected) in [
        (0, 1, &[][..]),
        (1, 5, &[]),
        (4, 5, &[13]),
        (20, 5, &[13]),
        (20, 2, &[]),
    ] {
        check(expected, |run| {
            strike(run, "silence", "Silence", true);
            let line = run
                .lines
                .get_mut("faults.jsonl")
                .unwrap()
                .last_mut()
                .unwrap();
            line["watched"] = json!([40 * SECOND, 60 * SECOND]);
            for number in 0..20 {
                let (operation, id) = (
                    Operation::order("bob", 100 + number),
                    format!("ord_b{number}"),
                );
                let outcome = json!({
                    "id": id, "version": 1, "note": operation.body["note"],
                    "amount": operation.body["amount"],
                });
                run.ask_at(
                    &operation,
                    false,
                    "ok",
                    answer(201, "stored", &outcome),
                    45 * SECOND,
                );
                run.push("orders", outcome.clone());
                run.deliver("order.created", &id, &outcome);
                run.add(
                    "feed.jsonl",
                    json!({ "what": "picked", "id": format!("ev_{id}") }),
                );
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
fn a_destination_that_nobody_can_find_owes_nothing() {
    check(&[], |run| {
        let row = json!({ "destination": "lost-1-0", "state": "retrying" });
        run.push("unfinished", row);
    });
}

#[test]
fn a_history_in_segments_is_one() {
    let mut run = Sample::sound();
    let lines = run.lines.remove("clients-0.jsonl").unwrap();
    let (first, second) = lines.split_at(lines.len() / 2 + 1);
    run.lines.insert("clients-0.jsonl", first.to_vec());
    let memory = json!({ "type": "memory", "wishes": [], "count": 4, "beyond": 4, "processes": 9 });
    let second = std::iter::once(memory).chain(second.iter().cloned());
    run.lines.insert("clients-0.1.jsonl", second.collect());
    let artifacts = run.artifacts();
    assert_eq!(violations(&artifacts), []);
    let attempts = artifacts.operations.iter().map(|it| it.attempts.len());
    assert_eq!(attempts.sum::<usize>() * 2, lines.len());
}

#[test]
fn a_refused_effect_that_is_there_is_found() {
    check(&[2], |run| {
        let operation = Operation::message("alice", 7);
        push(
            run,
            "messages",
            json!({ "charge_id": "ch_alice_7", "amount": 1070 }),
        );
        run.ask(
            &operation,
            false,
            "fail",
            answer(200, "stored", &Value::Null),
        );
    });
}

#[test]
fn an_answer_that_nothing_explains_is_found() {
    check(&[2], |run| {
        let operation = Operation::signup("alice", 8);
        run.ask(&operation, false, "fail", answer(404, "", &Value::Null));
    });
}

#[test]
fn a_failure_that_no_death_causes_is_found() {
    let failed = |run: &mut Sample, status: u64| {
        let mut failed = answer(201, "", &Value::Null);
        (failed["status"], failed["lasting"]) = (json!(status), json!(false));
        run.ask(&Operation::payment("alice", 2), false, "info", failed);
    };
    for status in [409, 503, 504] {
        check(&[], |run| failed(run, status));
    }
    check(&[2], |run| failed(run, 500));
    // Other faults may cause it.
    check(&[], |run| {
        strike(run, "full disk", "Full(1s)", true);
        failed(run, 500);
    });
}

#[test]
fn an_order_that_the_api_does_not_show_or_shows_otherwise_is_found() {
    let plant = |change: fn(&mut Value)| {
        move |run: &mut Sample| {
            let mut listed = listed(&run.rows);
            change(&mut listed);
            run.listed = Some(listed);
        }
    };
    check(
        &[2],
        plant(|listed| drop(listed["orders"].as_array_mut().unwrap().remove(0))),
    );
    check(
        &[2],
        plant(|listed| listed["orders"][0]["tenant"] = json!("bob")),
    );
    check(
        &[2],
        plant(|listed| listed["read"]["ord_1"]["amount"] = json!(1)),
    );
    check(
        &[2],
        plant(|listed| listed["orders"][0]["order"]["amount"] = json!(1)),
    );
    check(
        &[2],
        plant(|listed| listed["read"]["ord_1"] = json!({ "status": 404 })),
    );
    check(
        &[2],
        plant(|listed| drop(listed["ledger"].as_array_mut().unwrap().remove(0))),
    );
    check(
        &[2],
        plant(|listed| listed["ledger"][0]["amount"] = json!(1)),
    );
}

#[test]
fn an_event_that_says_something_else_than_the_response_is_found() {
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
    for (effects, expected) in [(1, &[][..]), (0, &[6]), (2, &[8])] {
        check(expected, |run| {
            let hook = run.lines["hook.jsonl"].iter();
            let seen = hook.map(|line| json!({ "event_id": line["id"], "effects": 1 }));
            let mut seen: Vec<_> = seen.collect();
            seen[0]["effects"] = json!(effects);
            let mut listed = listed(&run.rows);
            listed["demo"] = json!(seen);
            run.listed = Some(listed);
        });
    }
    for is_known in [true, false] {
        check(&[6], |run| {
            let hook = run.lines["hook.jsonl"].iter();
            let seen = hook.map(|line| json!({ "event_id": line["id"], "effects": 1 }));
            let mut seen: Vec<_> = seen.skip(usize::from(is_known)).collect();
            if !is_known {
                seen.push(json!({ "event_id": "ev_unknown", "effects": 1 }));
            }
            let mut listed = listed(&run.rows);
            listed["demo"] = json!(seen);
            run.listed = Some(listed);
        });
    }
}

#[test]
fn a_duplicate_of_an_event_that_was_held_is_explained_by_the_death_alone() {
    for (word, expected) in [("kill delivering", &[][..]), ("double", &[7])] {
        check(expected, |run| {
            strike(run, word, "KillDelivering", true);
            remove(run, "hook.jsonl", "ev_rf_1");
            let body = json!({ "type": "refund.succeeded", "data": { "refund_id": "rf_1" } });
            let body = body.to_string();
            run.arrive("hook.jsonl", "ev_rf_1", "held", 40 * SECOND, Some(&body));
            run.arrive("hook.jsonl", "ev_rf_1", "kind", 41 * SECOND, None);
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
fn a_checkout_may_fail_for_what_was_done_to_its_provider_and_for_nothing_else() {
    for (why, expected) in [("absent: it lost every call", &[][..]), ("tired", &[2])] {
        check(expected, |run| {
            push(run, "sagas", json!({ "id": "chk_9", "state": "failed" }));
            run.deliver(
                "checkout.failed",
                "chk_9",
                &json!({ "checkout_id": "chk_9" }),
            );
            let outcome = json!({ "code": "CONFLICT.checkout.failed", "detail": why });
            let operation = Operation::checkout("alice", 9, true);
            run.ask(&operation, false, "fail", answer(409, "stored", &outcome));
        });
    }
}

#[test]
fn a_checkout_that_was_taken_up_may_fail_for_its_provider_or_for_where_it_goes() {
    for (is_shippable, why, expected) in [
        (true, "absent", &[][..]),
        (true, "undeliverable", &[2]),
        (false, "undeliverable", &[]),
    ] {
        check(expected, |run| {
            let row = json!({ "id": "chk_9", "state": "failed", "reason_code": why });
            push(run, "sagas", row);
            let outcome = json!({ "checkout_id": "chk_9" });
            run.deliver("checkout.failed", "chk_9", &outcome);
            let operation = Operation::checkout("alice", 9, is_shippable);
            run.ask(
                &operation,
                false,
                "ok",
                answer(202, "stored", &json!({ "id": "chk_9" })),
            );
        });
    }
}

#[test]
fn a_replay_that_differs_in_a_byte_is_found() {
    check(&[3], |run| {
        let other = json!({ "id": "ch_1", "more": 1 });
        run.ask(
            &Operation::payment("alice", 2),
            false,
            "ok",
            answer(201, "replayed", &other),
        );
    });
}

#[test]
fn another_request_that_was_taken_is_found() {
    let altered = Operation::payment("alice", 2)
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
    // It is asked for from 40 s on, until 41 s.
    for (first, found) in [(33, true), (36, false), (43, false), (45, true)] {
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
            run.arrive(feed, "ev_rf_1", "kind", 46 * SECOND, None);
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
fn a_fault_that_did_not_bite_explains_only_what_it_does_all_the_same() {
    for (word, how, is_harmful) in [
        ("full disk", "Full(1s)", false),
        ("crowd", "Crowd(1s)", false),
        ("place", r#"Place(Shop(0), "thumbnails.after:1")"#, true),
        ("pause", "Pause(Shop(0), 1s)", true),
        ("net", "Net(Hook(0), Hole, 1s)", true),
        ("commit unheard", "Commit(Rows(0), CutBefore)", true),
    ] {
        for bit in [false, true] {
            let expected: &[usize] = if bit || is_harmful { &[] } else { &[7] };
            check(expected, |run| {
                strike(run, word, how, bit);
                repeat(run, "hook.jsonl", 40, 41);
            });
        }
    }
}

#[test]
fn a_lock_explains_a_duplicate_of_whoever_touches_that_table() {
    for (how, file, found) in [
        (r#"Lock("shop_order", 1s)"#, "hook.jsonl", false),
        (r#"Lock("shop_order", 1s)"#, "feed.jsonl", true),
        (r#"Lock("shop_order", 1s)"#, "stream.jsonl", true),
        (r#"Lock("hapax.idempotency_key", 1s)"#, "feed.jsonl", false),
    ] {
        let expected: &[usize] = if found { &[7] } else { &[] };
        check(expected, |run| {
            strike(run, "lock", how, true);
            repeat(run, file, 40, 41);
        });
    }
}

#[test]
fn a_mail_that_came_again_is_found_unless_it_is_explained() {
    for (mood, first, again, found) in [
        ("kind", 5, 40, true),
        ("kind", 40, 41, true),
        // The kills are at 20 s.
        ("kind", 19, 22, false),
        ("cut", 40, 41, false),
        ("later", 40, 41, false),
    ] {
        let expected: &[usize] = if found { &[7] } else { &[] };
        check(expected, |run| {
            run.lines.remove("mail.jsonl");
            for (mood, at) in [(mood, first), ("kind", again)] {
                let mail = json!({
                    "what": "mail", "id": "<usr_1>", "at": at * SECOND, "mood": mood,
                    "to": ["n4@alice.example"],
                });
                run.add("mail.jsonl", mail);
            }
        });
    }
    // There is no proxy before the mailbox, and faults of other receivers do not concern it.
    for (word, how, found) in [
        ("kill", "Kill(Far(2), 0ns)", false),
        ("kill", "Kill(Far(1), 0ns)", true),
        ("net", "Net(Hook(0), Hole, 1s)", true),
        ("net", "Net(Rows(0), Hole, 1s)", false),
        ("net", "Net(RelayRows, Hole, 1s)", true),
    ] {
        let expected: &[usize] = if found { &[7] } else { &[] };
        check(expected, |run| {
            strike(run, word, how, true);
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
fn stock_that_is_set_aside_for_nobody_is_found() {
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
            push(run, "ledger", again);
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
        let operation = Operation::signup("alice", 8);
        run.ask(&operation, false, "info", Value::Null);
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
fn a_look_that_has_counted_nothing_is_none() {
    for (disk, is_missing) in [
        (Value::Null, true),
        (json!({ "fenced": null }), true),
        (json!({ "fenced": 0 }), false),
    ] {
        let mut run = Sample::sound();
        run.add("sizes.jsonl", json!({ "resident": {}, "disk": disk }));
        let bites = bites(&run.artifacts());
        let never = missing(&bites);
        let is_named = never.contains(&"looks at the checkpoints");
        assert_eq!(is_named, is_missing, "{never:?}");
    }
}

#[test]
fn who_goes_on_from_where_they_were_struck_was_not_killed() {
    for (place, times) in [
        ("saga.end.after:1", 1),
        ("saga.end.after:1:on purpose", 0),
        ("saga.end.after:1:wait", 0),
    ] {
        let mut run = Sample::sound();
        let before = kills(&run.artifacts());
        strike(
            &mut run,
            "place",
            &format!("Place(Shop(0), {place:?})"),
            true,
        );
        assert_eq!(kills(&run.artifacts()), before + times, "{place}");
    }
}

/// Plants something in a sound run, and finds that exactly these invariants are broken.
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

/// A fault at 40 s that lasts one second.
fn strike(run: &mut Sample, word: &str, how: &str, bit: bool) {
    let (from, until) = (40 * SECOND, 41 * SECOND);
    let line = json!({ "blow": word, "how": how, "bit": bit, "from": from, "until": until });
    run.add("faults.jsonl", line);
}

/// Has an event come to a receiver at these seconds, and at no other time.
fn repeat(run: &mut Sample, file: &'static str, first: u64, again: u64) {
    remove(run, file, "ev_rf_1");
    let body = json!({ "type": "refund.succeeded", "data": { "refund_id": "rf_1" } });
    let body = body.to_string();
    run.arrive(file, "ev_rf_1", "kind", first * SECOND, Some(&body));
    run.arrive(file, "ev_rf_1", "kind", again * SECOND, None);
}
