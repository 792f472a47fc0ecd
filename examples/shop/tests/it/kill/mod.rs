//! The shop is killed again and again, and keeps every promise.
//!
//! Customers in this process ask a real shop in another one for things and
//! write down what they are told; a receiver here takes its webhooks. The shop
//! is killed with SIGKILL under that load, at random instants and at every
//! named place before and after a commit and a send. Afterwards what was
//! promised is held against what is there, and a run in which the faults did
//! not bite fails too. `HAPAX_TEST_SEED` repeats the choices of a run.

mod answer;
mod journal;
mod client;
mod request;
mod shop;
mod receiver;
mod market;
mod customer;
mod load;
mod run;
mod evidence;
mod sample;
mod invariants;
mod honesty;

use std::{
    fs,
    hash::{BuildHasher as _, RandomState},
    path::Path,
    time::Duration,
};

use honesty::Bites;
use invariants::violations;
use run::{End, Run};

/// Kills at random instants.
const KILLS: usize = 110;
/// Every so many lives, one is long enough for everything to be settled well before its end.
const LONG_LIFE_EVERY: usize = 40;
const LONG_LIFE: Duration = Duration::from_secs(5);
/// Lives that end at one named place.
const LIVES: usize = 7;
/// The named places, before and after each commit and each send.
const PLACES: [&str; 6] = [
    "sqlite.commit.before",
    "sqlite.commit.after",
    "relay.offer.before",
    "relay.offer.after",
    "relay.settle.before",
    "relay.settle.after",
];
/// Violations that a failure shows; the rest is in the history.
const SHOWN: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shop_killed_a_hundred_times_at_random_loses_nothing_and_does_nothing_twice() {
    let seed = seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut millis = |range| Duration::from_millis(rng.u64(range));
    let ends = (1..=KILLS).map(|life| match life {
        _ if life % LONG_LIFE_EVERY == 0 => End::Late(LONG_LIFE),
        _ if life % 6 == 0 => End::Early(millis(0..120)),
        _ => End::Late(millis(5..150)),
    });
    let bites = check(&ends.collect::<Vec<_>>(), seed).await;
    assert!(bites.deaths >= 100, "seed {seed}: {bites:?}");
    let missing = bites.missing();
    assert!(
        missing.is_empty(),
        "seed {seed}: there never was {missing:?} in {bites:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_just_before_a_commit_leaves_nothing_half_done() {
    check_place("sqlite.commit.before").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_just_after_a_commit_loses_nothing_of_it() {
    check_place("sqlite.commit.after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_just_before_a_send_loses_no_event() {
    check_place("relay.offer.before").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_just_after_a_send_repeats_the_event_and_no_effect() {
    check_place("relay.offer.after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_just_before_outcomes_are_settled_loses_no_event() {
    check_place("relay.settle.before").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_just_after_outcomes_are_settled_loses_no_event() {
    check_place("relay.settle.after").await;
}

#[test]
fn every_named_place_in_the_sources_has_its_test() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
    let mut named = Vec::new();
    find_places(&crates, &mut named);
    named.sort_unstable();
    named.dedup();
    let mut tested = PLACES.map(str::to_owned);
    tested.sort_unstable();
    assert_eq!(named, tested);
}

/// Several deaths in a row at one place: at its first hit, during recovery, and under load.
async fn check_place(place: &'static str) {
    assert!(PLACES.contains(&place), "{place} is not among the places");
    let seed = seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut nth = |life: usize| {
        if life.is_multiple_of(2) {
            1
        } else {
            rng.u64(1..=40)
        }
    };
    let ends: Vec<End> = (0..LIVES).map(|life| End::At(place, nth(life))).collect();
    let bites = check(&ends, seed).await;
    assert_eq!(bites.deaths, LIVES, "seed {seed}: {bites:?}");
}

/// Goes through the deaths, and finds nothing wrong afterwards.
async fn check(ends: &[End], seed: u64) -> Bites {
    let (run, evidence) = Run::through(ends, seed).await;
    let (bites, violations) = (Bites::count(&evidence), violations(&evidence));
    if violations.is_empty() {
        say(&format!("seed {seed}: {bites:?}"));
        return bites;
    }
    let shown: Vec<String> = violations
        .iter()
        .take(SHOWN)
        .map(ToString::to_string)
        .collect();
    panic!(
        "seed {seed}, {bites:?}: {} violations; shop and history are kept in {}\n{}",
        violations.len(),
        run.keep(&evidence).display(),
        shown.join("\n"),
    );
}

fn find_places(folder: &Path, named: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("the sources can be read").path();
        if path.is_dir() {
            find_places(&path, named);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = fs::read_to_string(&path).expect("the sources can be read");
            let hits = text
                .split(".hit(\"")
                .skip(1)
                .filter_map(|rest| rest.split('"').next());
            named.extend(hits.map(str::to_owned));
        }
    }
}

/// The seed of this run: given, or new.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever repeats a run says so in the environment"
)]
fn seed() -> u64 {
    let given = std::env::var("HAPAX_TEST_SEED").ok();
    let seed = given.map(|text| text.parse().expect("HAPAX_TEST_SEED is a number"));
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(()));
    say(&format!("HAPAX_TEST_SEED={seed}"));
    seed
}

#[expect(
    clippy::print_stderr,
    reason = "whoever looks into a failure needs the seed"
)]
fn say(text: &str) {
    eprintln!("{text}");
}
