//! Crash tests of the shop: it is killed again and again, and must keep every promise.
//!
//! Customers in the process of the test send requests to a real shop in another process and record
//! the responses. A receiver in the process of the test receives its webhooks. The shop is killed
//! with SIGKILL under this load, at random times and at every failpoint before and after a commit
//! and a send. On PostgreSQL there are two instances, and in one test the database server crashes
//! instead of the shop. Afterwards the acknowledged effects are compared with the existing ones. A
//! run also fails if its faults had no effect. `HAPAX_TEST_SEED` repeats the random choices of a
//! run. `HAPAX_TEST_KILLS` and `HAPAX_TEST_CRASHES` make a run longer.

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
    str::FromStr,
    time::Duration,
};

use hapax_testkit::postgres::Cluster;

use crate::shop::Store;
use evidence::Evidence;
use honesty::Bites;
use invariants::violations;
use journal::Attempt;
use run::{End, Run};

/// The number of kills at random times on each store, unless `HAPAX_TEST_KILLS` is set.
const KILLS: usize = 50;
/// One of this many lives is long enough that everything is settled well before its end.
const LONG_LIFE_EVERY: usize = 25;
/// One of this many lives ends while an event is being delivered. If instances share the
/// destinations, a random kill seldom hits the instance that is delivering.
const CARRYING_EVERY: usize = 10;
const LONG_LIFE: Duration = Duration::from_secs(4);
/// The number of lives that end at one failpoint.
const LIVES: usize = 5;
/// The number of crashes of the PostgreSQL server.
const CRASHES: usize = 20;
/// The failpoints that both stores have, before and after each send and each settlement.
const PLACES: [&str; 4] = [
    "relay.offer.before",
    "relay.offer.after",
    "relay.settle.before",
    "relay.settle.after",
];
/// The failpoints of a single store, before and after its commits.
const COMMITS: [&str; 4] = [
    "sqlite.commit.before",
    "sqlite.commit.after",
    "postgres.commit.before",
    "postgres.commit.after",
];
/// The failpoints of the shop, around its calls to the payment provider.
const CALLS: [&str; 6] = [
    "payments.call.before",
    "payments.call.after",
    "payments.charged",
    "refunds.reserved",
    "refunds.call.before",
    "refunds.call.after",
];
/// The number of violations that a failure prints. The history contains all of them.
const SHOWN: usize = 20;

macro_rules! on_both_stores {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::shop::Store::Sqlite).await;
            })*
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::shop::Store::Postgres).await;
            })*
        }
    };
}

on_both_stores! {
    a_shop_killed_again_and_again_at_random_loses_nothing_and_does_nothing_twice,
    a_death_just_before_a_commit_leaves_nothing_half_done,
    a_death_just_after_a_commit_loses_nothing_of_it,
    a_death_just_before_a_send_loses_no_event,
    a_death_just_after_a_send_repeats_the_event_and_no_effect,
    a_death_just_before_outcomes_are_settled_loses_no_event,
    a_death_just_after_outcomes_are_settled_loses_no_event,
    a_death_around_a_call_to_the_provider_moves_money_once,
}

async fn a_shop_killed_again_and_again_at_random_loses_nothing_and_does_nothing_twice(on: Store) {
    let seed = seed();
    let kills = given("HAPAX_TEST_KILLS").unwrap_or(KILLS);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut millis = |range| Duration::from_millis(rng.u64(range));
    let ends = (1..=kills).map(|life| match life {
        _ if life % LONG_LIFE_EVERY == 0 => End::Late(LONG_LIFE),
        _ if life % CARRYING_EVERY == 0 => End::Carrying,
        _ if life % 6 == 0 => End::Early(millis(0..120)),
        _ => End::Late(millis(5..150)),
    });
    let bites = check(on, &ends.collect::<Vec<_>>(), seed).await;
    assert_eq!(bites.deaths, kills, "seed {seed}: {bites:?}");
    let missing = bites.missing();
    assert!(
        missing.is_empty(),
        "seed {seed}: {missing:?} never occurred in {bites:?}"
    );
}

async fn a_death_just_before_a_commit_leaves_nothing_half_done(on: Store) {
    check_place(on, commit(on, "before")).await;
}

async fn a_death_just_after_a_commit_loses_nothing_of_it(on: Store) {
    check_place(on, commit(on, "after")).await;
}

async fn a_death_just_before_a_send_loses_no_event(on: Store) {
    check_place(on, "relay.offer.before").await;
}

async fn a_death_just_after_a_send_repeats_the_event_and_no_effect(on: Store) {
    check_place(on, "relay.offer.after").await;
}

async fn a_death_just_before_outcomes_are_settled_loses_no_event(on: Store) {
    check_place(on, "relay.settle.before").await;
}

async fn a_death_just_after_outcomes_are_settled_loses_no_event(on: Store) {
    check_place(on, "relay.settle.after").await;
}

async fn a_death_around_a_call_to_the_provider_moves_money_once(on: Store) {
    let seed = seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    let ends = CALLS.map(|place| [End::At(place, 1), End::At(place, rng.u64(2..=8))]);
    let bites = check(on, ends.as_flattened(), seed).await;
    assert!(bites.deaths >= 2 * CALLS.len(), "seed {seed}: {bites:?}");
}

/// No instance of the shop is killed. The database server of both instances crashes and recovers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_again_and_again_loses_nothing_and_repeats_nothing() {
    let seed = seed();
    let crashes = given("HAPAX_TEST_CRASHES").unwrap_or(CRASHES);
    let mut rng = fastrand::Rng::with_seed(seed);
    let lives = (0..crashes).map(|_| Duration::from_millis(rng.u64(20..400)));
    let lives: Vec<_> = lives.collect();
    let mut cluster = Cluster::start().await;
    let (run, evidence) = Run::through_crashes(&mut cluster, lives, seed).await;
    let answers = evidence.history.attempts.iter().filter_map(Attempt::answer);
    let count = |status| answers.clone().filter(|it| it.status == status).count();
    let (away, broken) = (count(503), count(500));
    judge(run, &evidence, seed);
    assert_eq!(evidence.upheavals.len(), crashes + 6, "seed {seed}");
    assert!(
        away > 0,
        "seed {seed}: the database was available for all requests"
    );
    assert_eq!(
        broken, 0,
        "seed {seed}: status 500 for an unavailable server"
    );
}

#[test]
fn every_named_place_in_the_sources_has_its_test() {
    let shop = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut named = Vec::new();
    find_places(&shop.join("../../crates"), &mut named);
    find_places(&shop.join("src"), &mut named);
    named.sort_unstable();
    named.dedup();
    let mut tested: Vec<_> = PLACES
        .iter()
        .chain(&COMMITS)
        .chain(&CALLS)
        .copied()
        // Uploads have separate tests, and the failpoints of a checkout are cases of the crash
        // matrix.
        .chain(crate::uploads::crash::PLACES)
        .chain(crate::money::cases::SAGA.map(|(place, _)| place))
        .collect();
    tested.sort_unstable();
    assert_eq!(named, tested);
}

/// The failpoint before or after a commit of this store.
fn commit(on: Store, when: &str) -> &'static str {
    let store = match on {
        Store::Sqlite => "sqlite",
        Store::Postgres => "postgres",
    };
    let named = format!("{store}.commit.{when}");
    let place = COMMITS.into_iter().find(|place| *place == named);
    place.expect("the failpoint is in COMMITS")
}

/// Kills the shop several times at one failpoint: at the first hit, during recovery, and under
/// load.
async fn check_place(on: Store, place: &'static str) {
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
    let bites = check(on, &ends, seed).await;
    // An instance that was already running is killed first, and started again with the failpoint.
    assert!(bites.deaths >= LIVES, "seed {seed}: {bites:?}");
}

/// Runs the shop through the deaths, and checks that there are no violations.
async fn check(on: Store, ends: &[End], seed: u64) -> Bites {
    let (run, evidence) = Run::through(on, ends, seed).await;
    judge(run, &evidence, seed)
}

/// Checks that a run has no violations.
fn judge(run: Run, evidence: &Evidence, seed: u64) -> Bites {
    let (bites, violations) = (Bites::count(evidence), violations(evidence));
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
        run.keep(evidence).display(),
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

/// The seed of this run, from the environment or random.
fn seed() -> u64 {
    let seed = given("HAPAX_TEST_SEED").unwrap_or_else(|| RandomState::new().hash_one(()));
    say(&format!("HAPAX_TEST_SEED={seed}"));
    seed
}

/// A number from the environment, to repeat a run or make it longer.
#[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
fn given<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let number = text.parse().ok();
    Some(number.unwrap_or_else(|| panic!("{name}: expected a number, got {text:?}")))
}

#[expect(
    clippy::print_stderr,
    reason = "the seed is needed to repeat a failure"
)]
fn say(text: &str) {
    eprintln!("{text}");
}
