//! Money, stock and checkouts: each movement has one reason and happens once.

use serde_json::json;

use super::{check, provide, remove};
use crate::{
    checkers::sample::{RECEIVERS, Sample, response},
    clients::Operation,
};

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
