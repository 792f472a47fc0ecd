//! Tests of failpoints: a shop is killed at each of them, and no effect is lost, duplicated or
//! unexpected.

use std::{collections::BTreeSet, fs, path::Path};

use crate::holds;

/// The failpoints of a noun, which share a deployment on PostgreSQL: a server and twelve processes
/// take longer to start than a shop.
const NOUNS: [&[&str]; 7] = [
    &["commit."],
    &["relay.offer."],
    &["relay.settle."],
    &["payments."],
    &["refunds."],
    &["checkouts.", "saga."],
    &["uploads.", "thumbnails."],
];

/// The failpoints that other tests use: of an operator's process beside a shop and of the thread that
/// merges the log, which the tests of the SQLite store kill at each of them (`admin::crash`, `log`),
/// and of a feed, where the tests of the server kill the relay (`feeds`), and those of the store the
/// feeder (`feeds::crashes`).
const ELSEWHERE: [&str; 3] = ["sqlite.admin.", "sqlite.merge.", "feed."];

/// A test of each failpoint, on SQLite.
macro_rules! on_sqlite {
    ($($test:ident: $failpoint:literal,)*) => {
        const FAILPOINTS: &[&str] = &[$($failpoint),*];

        mod sqlite {
            $(#[test]
            fn $test() {
                super::check("sqlite", &[$failpoint]);
            })*
        }
    };
}

/// A test of the failpoints of each noun, on PostgreSQL.
macro_rules! on_postgresql {
    ($($test:ident: $noun:literal,)*) => {
        mod postgresql {
            $(#[test]
            fn $test() {
                super::check_noun($noun);
            })*
        }
    };
}

on_sqlite! {
    a_kill_just_before_a_commit_leaves_nothing_half_done: "commit.before",
    a_kill_just_after_a_commit_loses_nothing_of_it: "commit.after",
    a_kill_just_before_a_send_loses_no_event: "relay.offer.before",
    a_kill_just_after_a_send_repeats_the_event_and_no_effect: "relay.offer.after",
    a_kill_just_before_outcomes_are_settled_loses_no_event: "relay.settle.before",
    a_kill_just_after_outcomes_are_settled_loses_no_event: "relay.settle.after",
    a_kill_before_a_charge_charges_once: "payments.call.before",
    a_kill_after_a_charge_charges_once: "payments.call.after",
    a_kill_before_a_charge_is_stored_charges_once: "payments.charged",
    a_kill_after_a_refund_is_reserved_refunds_once: "refunds.reserved",
    a_kill_before_a_refund_refunds_once: "refunds.call.before",
    a_kill_after_a_refund_refunds_once: "refunds.call.after",
    a_kill_after_a_checkout_is_stored_finishes_it: "checkouts.started",
    a_kill_before_a_local_step_runs_it_once: "saga.local.before",
    a_kill_after_a_local_step_runs_it_once: "saga.local.after",
    a_kill_before_an_intent_is_stored_calls_once: "saga.intent.before",
    a_kill_after_an_intent_is_stored_calls_once: "saga.intent.after",
    a_kill_before_a_remote_call_calls_once: "saga.call.before",
    a_kill_after_a_remote_call_calls_once: "saga.call.after",
    a_kill_after_an_outcome_is_stored_goes_on_from_there: "saga.outcome.after",
    a_kill_before_a_saga_ends_ends_it: "saga.end.before",
    a_kill_after_a_saga_has_ended_leaves_it_so: "saga.end.after",
    a_kill_after_a_file_is_stored_keeps_the_upload_whole: "uploads.stored",
    a_kill_before_thumbnails_are_made_makes_them: "thumbnails.before",
    a_kill_after_thumbnails_were_made_makes_no_others: "thumbnails.after",
}

on_postgresql! {
    a_kill_around_a_commit_loses_nothing_and_leaves_nothing_half_done: 0,
    a_kill_around_a_send_loses_no_event_and_repeats_no_effect: 1,
    a_kill_around_a_settlement_loses_no_event: 2,
    a_kill_around_a_charge_charges_once: 3,
    a_kill_around_a_refund_refunds_once: 4,
    a_kill_in_a_checkout_finishes_it_once: 5,
    a_kill_around_an_upload_keeps_it_whole: 6,
}

#[test]
fn every_failpoint_in_the_sources_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut named = BTreeSet::new();
    for folder in ["crates", "examples/shop/src"] {
        find(&root.join(folder), &mut named);
    }
    named.retain(|it| !ELSEWHERE.iter().any(|start| it.starts_with(start)));
    let on_postgresql = NOUNS
        .iter()
        .flat_map(|noun| failpoints(noun))
        .map(|it| name("postgres", it));
    let on_sqlite = FAILPOINTS.iter().map(|it| name("sqlite", it));
    let both: BTreeSet<_> = on_sqlite.chain(on_postgresql).collect();
    assert_eq!(named, both);
    let nouns: usize = NOUNS.iter().map(|noun| failpoints(noun).len()).sum();
    assert_eq!(nouns, FAILPOINTS.len(), "each has one noun");
}

/// The failpoints of a noun.
fn failpoints(noun: &[&str]) -> Vec<&'static str> {
    let is_its = |failpoint: &&&str| noun.iter().any(|start| failpoint.starts_with(start));
    FAILPOINTS.iter().filter(is_its).copied().collect()
}

#[track_caller]
fn check_noun(noun: usize) {
    check("postgres", &failpoints(NOUNS[noun]));
}

#[track_caller]
fn check(store: &str, failpoints: &[&str]) {
    let names: Vec<_> = failpoints
        .iter()
        .map(|failpoint| name(store, failpoint))
        .collect();
    let names = names.iter().map(String::as_str);
    let words = ["scenario", "failpoints", "--store", store].into_iter();
    holds(&words.chain(names).collect::<Vec<_>>());
}

/// Each store has its own names for the failpoints of its commits.
fn name(store: &str, failpoint: &str) -> String {
    if failpoint.starts_with("commit.") {
        format!("{store}.{failpoint}")
    } else {
        failpoint.to_owned()
    }
}

/// Adds the names of the failpoints in the sources below a folder.
fn find(folder: &Path, named: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, named);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let hits = text.split(".hit(\"").skip(1);
            named.extend(
                hits.filter_map(|rest| rest.split('"').next())
                    .map(str::to_owned),
            );
        }
    }
}
