//! Tests of failpoints: a shop is killed at each of them, and no effect is lost, duplicated or
//! unexpected.

#[path = "../../src/nemesis/shop_failpoints.rs"]
mod shop_failpoints;

use std::{collections::BTreeSet, fs, path::Path};

use self::shop_failpoints::SHOP;
use crate::holds;

/// The failpoints of a commit. Their names start with that of the store.
const COMMIT: [&str; 2] = ["commit.before", "commit.after"];

/// The failpoints of a noun share a run, because most of the time of a run is the start of its processes
/// and the wait until every event has arrived. Each failpoint is a gate of the run: if no shop was killed
/// at it, the verdict is UNKNOWN, and the test fails.
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
/// feeder (`feeds::crashes`), and of a gateway, which the tests in `proof/gateway` kill (`kills`), and
/// of deliveries to endpoints, at which the tests of the server kill the relay (`endpoints`).
const ELSEWHERE: [&str; 5] = [
    "sqlite.admin.",
    "sqlite.merge.",
    "feed.",
    "gateway.",
    "endpoints.",
];

/// A test of the failpoints of each noun, on each store.
macro_rules! on_both_stores {
    ($($test:ident: $noun:literal,)*) => {
        mod sqlite {
            $(#[test]
            fn $test() {
                super::check("sqlite", $noun);
            })*
        }

        mod postgresql {
            $(#[test]
            fn $test() {
                super::check("postgres", $noun);
            })*
        }

        /// The nouns that have a test.
        const TESTED: &[usize] = &[$($noun),*];
    };
}

on_both_stores! {
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
    let tested = TESTED.iter().flat_map(|noun| failpoints(NOUNS[*noun]));
    let tested: Vec<_> = tested.collect();
    assert_eq!(tested.len(), COMMIT.len() + SHOP.len(), "each has one noun");
    let on_each = ["sqlite", "postgres"].map(|store| tested.iter().map(move |it| name(store, it)));
    let expected: BTreeSet<_> = on_each.into_iter().flatten().collect();
    assert_eq!(named, expected);
}

/// The failpoints of a noun.
fn failpoints(noun: &[&str]) -> Vec<&'static str> {
    let is_its = |failpoint: &&str| noun.iter().any(|start| failpoint.starts_with(start));
    COMMIT.into_iter().chain(SHOP).filter(is_its).collect()
}

#[track_caller]
fn check(store: &str, noun: usize) {
    let names: Vec<_> = failpoints(NOUNS[noun])
        .into_iter()
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
