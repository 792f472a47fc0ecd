//! Duplicate deliveries: a fault of the right process at the right time explains them, and nothing
//! else does.

use serde_json::json;

use super::{check, inject, refunded, remove};
use crate::checkers::sample::{SECOND, Sample};

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
fn a_duplicate_of_a_held_event_is_explained_only_by_the_kill() {
    for (kind, expected) in [("kill during delivery", &[][..]), ("duplicate node", &[7])] {
        check(expected, |run| {
            inject(run, kind, "KillDelivering", true);
            repeat_after(run, "hook.jsonl", "held", 40, 41);
        });
    }
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
