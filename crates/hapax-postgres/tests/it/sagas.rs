//! Sagas on PostgreSQL, where the conformance suite cannot test every store: overlapping owners,
//! statement plans, round trips and notifications.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, future::join_all};
use hapax::{
    Clock, Timestamp,
    event::Headers,
    saga::{Definition, Direction, Kind, Owned, SagaRecord, StepRecord, StepState},
    store::{Keys, SagaRecords, SagaRows, Sagas, StoreError, Transaction},
};
use hapax_postgres::{Postgres, Tx};
use hapax_testkit::{
    assert_matches,
    events::event,
    postgres::Database,
    proxy::{Deed, Moment, Proxy},
    wait::eventually,
};
use tokio::time::Instant;

use crate::{
    bad_days::day::Day,
    fixture::{Fixture, INSERT, PATIENCE, clock, settings},
};

const LEASE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn of_two_nodes_that_race_for_a_saga_one_gets_it() {
    let (here, there) = two().await;
    for number in 0..60 {
        start(&here.store, &format!("s{number}")).await;
    }
    let ask = async |node: &Fixture| {
        let mut mine = Vec::new();
        loop {
            let taken = take(&node.store, 2).await;
            if taken.is_empty() {
                return mine;
            }
            mine.extend(taken.into_iter().map(|saga| (saga.id, saga.epoch)));
        }
    };
    let nodes = [&here, &there, &here, &there];
    let mut taken = join_all(nodes.map(ask)).await.concat();
    taken.extend(ask(&here).await);
    taken.sort();
    taken.dedup_by(|one, other| one.0 == other.0);
    assert_eq!(taken.len(), 60);
    assert!(taken.iter().all(|(_, epoch)| *epoch == 1), "{taken:?}");
}

#[tokio::test]
async fn a_worker_whose_move_is_open_is_not_dead() {
    let (here, there) = two().await;
    start(&here.store, "s1").await;
    let kinds = [checkout().kind().clone()];
    let taken = here.store.take_sagas(&kinds, Duration::ZERO, 1).await;
    let owned = Owned::of(&taken.unwrap()[0]);
    // The lease of the worker has expired and will expire again, but its commit is under way.
    let mut tx = here
        .store
        .lock_saga(&owned, Duration::ZERO)
        .await
        .unwrap()
        .tx;
    assert!(take(&there.store, 1).await.is_empty());
    tx.write_step(&owned, &step("a")).await.unwrap();
    tx.commit().await.unwrap();
    let taken = take(&there.store, 1).await.remove(0);
    assert_eq!(taken.steps.len(), 1);
    here.idle().await;
}

#[tokio::test]
async fn who_takes_a_saga_out_of_an_open_move_reads_what_that_wrote() {
    let (here, there) = two().await;
    start(&here.store, "s1").await;
    let owned = Owned::of(&take(&here.store, 1).await[0]);
    let mut tx = here.store.lock_saga(&owned, LEASE).await.unwrap().tx;
    tx.write_step(&owned, &step("a")).await.unwrap();
    let store = there.store.clone();
    let seizing = tokio::spawn(async move { store.seize_saga("s1", LEASE).await });
    waits(&here).await;
    tx.commit().await.unwrap();
    let seized = seizing.await.unwrap().unwrap().unwrap();
    assert_eq!(seized.steps.len(), 1);
    assert!(seized.epoch > owned.epoch);
    let fenced = here.store.lock_saga(&owned, LEASE).await;
    assert_matches!(fenced, Err(StoreError::Fenced));
}

#[tokio::test]
async fn a_move_that_waits_for_the_next_owner_is_fenced() {
    let (here, there) = two().await;
    start(&here.store, "s1").await;
    let owned = Owned::of(&take(&here.store, 1).await[0]);
    let client = there.database.client().await;
    let raise = "BEGIN; UPDATE hapax.saga SET epoch = epoch + 1";
    client.batch_execute(raise).await.unwrap();
    let store = here.store.clone();
    let turning = tokio::spawn(async move { store.lock_saga(&owned, LEASE).await });
    waits(&here).await;
    client.batch_execute("COMMIT").await.unwrap();
    let turned = turning.await.unwrap();
    assert_matches!(turned, Err(StoreError::Fenced));
    here.idle().await;
}

#[tokio::test]
async fn a_word_that_is_committed_while_its_saga_is_given_back_wakes_it() {
    let (here, there) = two().await;
    start(&here.store, "s1").await;
    let owned = Owned::of(&take(&here.store, 1).await[0]);
    let mut tx = there.store.begin(None, Headers::new()).await.unwrap();
    assert!(tx.signal_saga("s1", "paid", b"").await.unwrap());
    let store = here.store.clone();
    let day = Duration::from_hours(24);
    let giving = tokio::spawn(async move { store.give_back_saga(&owned, day, "it", 0).await });
    // The give-back begins before the signal is committed, and ends after it.
    waits(&here).await;
    tx.commit().await.unwrap();
    giving.await.unwrap().unwrap();
    let taken = take(&there.store, 1).await;
    assert_eq!(taken.len(), 1, "the signal was lost");
    assert_eq!(taken[0].signals.len(), 1);
}

#[tokio::test]
async fn a_word_that_is_committed_while_its_saga_is_to_be_held_is_counted() {
    let (here, there) = two().await;
    start(&here.store, "s1").await;
    let owned = Owned::of(&take(&here.store, 1).await[0]);
    let mut tx = there.store.begin(None, Headers::new()).await.unwrap();
    assert!(tx.signal_saga("s1", "paid", b"").await.unwrap());
    let store = here.store.clone();
    let turning = tokio::spawn(async move { store.lock_saga(&owned, LEASE).await });
    waits(&here).await;
    tx.commit().await.unwrap();
    let held = turning.await.unwrap().unwrap();
    assert_eq!(held.signals_seen, 1);
    held.tx.rollback().await;
    here.idle().await;
}

#[tokio::test]
async fn words_that_come_at_once_are_counted_as_they_are_kept() {
    let (here, there) = two().await;
    start(&here.store, "s1").await;
    let tell = async |number: usize| {
        let node = [&here, &there][number % 2];
        let mut tx = node.store.begin(None, Headers::new()).await.unwrap();
        let name = format!("word {}", number % 5);
        let accepted = tx.signal_saga("s1", &name, b"").await.unwrap();
        tx.commit().await.unwrap();
        accepted
    };
    let accepted = join_all((0..20).map(tell)).await;
    assert!(accepted.into_iter().all(|it| it));
    let taken = take(&here.store, 1).await.remove(0);
    assert_eq!(taken.signals.len(), 5);
    assert_eq!(
        here.count("SELECT signals_received FROM hapax.saga").await,
        5
    );
    give_back(&here.store, &taken, Duration::from_hours(1)).await;
    assert!(
        take(&here.store, 1).await.is_empty(),
        "the saga stays due after its signals were read"
    );
}

#[tokio::test]
async fn a_saga_that_starts_or_receives_a_signal_notifies_after_the_commit() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut subscription = store.notifier().subscribe();
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    tx.start_saga(&checkout().begin("s1", None, Bytes::new()))
        .await
        .unwrap();
    assert!(
        subscription.notified().now_or_never().is_none(),
        "notified before the commit"
    );
    tx.rollback().await;
    assert!(
        subscription.notified().now_or_never().is_none(),
        "notified although the start was rolled back"
    );
    start(store, "s1").await;
    assert!(
        subscription.notified().now_or_never().is_some(),
        "not notified of the start"
    );
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    assert!(tx.signal_saga("s1", "paid", b"").await.unwrap());
    tx.commit().await.unwrap();
    assert!(
        subscription.notified().now_or_never().is_some(),
        "not notified of the signal"
    );
}

#[tokio::test]
async fn a_move_without_a_heard_commit_is_whole_or_nothing_and_its_rows_say_which() {
    let day = Day::new().await;
    for (id, deed, kept) in [("s1", Deed::CutBefore, 0), ("s2", Deed::CutAfter, 1)] {
        start(&day.node, id).await;
        let owned = Owned::of(&take(&day.node, 1).await[0]);
        let mut tx = day.node.lock_saga(&owned, LEASE).await.unwrap().tx;
        tx.execute(INSERT, &[&id]).await.unwrap();
        tx.emit(event(id)).unwrap();
        tx.write_step(&owned, &step("a")).await.unwrap();
        let trap = day.proxy.once(Moment::commit(), deed);
        let committed = tx.commit().await;
        assert_matches!(committed, Err(StoreError::Unavailable { .. }), "{deed:?}");
        trap.sprung().await;
        day.good.idle().await;
        // The next worker continues after the last stored step.
        let given = day.node.give_back_saga(&owned, Duration::ZERO, "", 0);
        given.await.unwrap();
        let taken = take(&day.node, 1).await.remove(0);
        assert_eq!(taken.steps.len(), kept, "{deed:?}");
        let notes = day.good.notes().await;
        assert_eq!(notes.contains(&id.to_owned()), kept == 1, "{deed:?}");
    }
}

#[tokio::test]
async fn a_move_is_three_flights() {
    const EACH_WAY: Duration = Duration::from_millis(60);
    let database = Database::fresh().await;
    let proxy = Proxy::to(database.address());
    let store = Postgres::open(settings(&proxy.url(&database.url())))
        .await
        .unwrap();
    start(&store, "s1").await;
    let owned = Owned::of(&take(&store, 1).await[0]);
    let one = async || {
        let began = Instant::now();
        let mut tx = store.lock_saga(&owned, LEASE).await.unwrap().tx;
        tx.write_step(&owned, &step("a")).await.unwrap();
        tx.emit(event("a")).unwrap();
        tx.commit().await.unwrap();
        began.elapsed()
    };
    // The first run prepares the statements.
    one().await;
    proxy.delay(EACH_WAY);
    // With a fourth round trip every run would be too slow; with three only a run on an overloaded
    // machine is.
    let mut took = Vec::new();
    while took.iter().all(|it| *it >= 4 * 2 * EACH_WAY) {
        assert!(took.len() < 30, "{took:?}");
        took.push(one().await);
    }
}

#[tokio::test]
async fn the_next_due_time_is_by_our_clock_however_close_the_databases_is() {
    let ahead = Duration::from_millis(500);
    let theirs = clock();
    let ours = Clock::new(move || theirs.now().after(ahead));
    let fixture = Fixture::with(|settings| settings.clock = ours).await;
    start(&fixture.store, "s1").await;
    let saga = take(&fixture.store, 1).await.remove(0);
    give_back(&fixture.store, &saga, Duration::from_mins(1)).await;
    let due = fixture.store.saga("s1").await.unwrap().unwrap();
    let due = due.wake_at.expect("the saga has no wake-up time");
    let next = next(&fixture.store)
        .await
        .expect("the store reports no next saga");
    let later = next.since(due);
    assert!(later + Duration::from_millis(5) >= ahead, "{later:?}");
}

#[tokio::test]
async fn an_unreadable_saga_does_not_block_the_others() {
    let fixture = Fixture::new().await;
    for id in ["bad row", "bad step", "good"] {
        start(&fixture.store, id).await;
    }
    for saga in take(&fixture.store, 10).await {
        let owned = Owned::of(&saga);
        let mut tx = fixture.store.lock_saga(&owned, LEASE).await.unwrap().tx;
        tx.write_step(&owned, &step("a")).await.unwrap();
        tx.commit().await.unwrap();
        give_back(&fixture.store, &saga, Duration::ZERO).await;
    }
    // Data as another version might write it.
    let spoil = "UPDATE hapax.saga SET headers = 'nonsense' WHERE id = 'bad row';
        ALTER TABLE hapax.saga_step DROP CONSTRAINT saga_step_state_check;
        UPDATE hapax.saga_step SET state = 'nonsense' WHERE saga = 'bad step'";
    fixture.run(spoil).await;
    let taken = take(&fixture.store, 10).await;
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].id.as_str(), taken[0].steps.len()), ("good", 1));
    let seized = fixture.store.seize_saga("bad step", LEASE).await;
    let error = seized.unwrap_err().error_chain();
    assert!(error.contains("bad step"), "{error}");
}

#[tokio::test]
async fn what_an_error_says_may_hold_anything() {
    let fixture = Fixture::new().await;
    start(&fixture.store, "s1").await;
    let saga = take(&fixture.store, 1).await.remove(0);
    let owned = Owned::of(&saga);
    let mut tx = fixture.store.lock_saga(&owned, LEASE).await.unwrap().tx;
    let said = StepRecord {
        error: Some(hapax::saga::Refusal::new("no", "nul: \0")),
        ..step("a")
    };
    tx.write_step(&owned, &said).await.unwrap();
    tx.commit().await.unwrap();
    let given = fixture
        .store
        .give_back_saga(&owned, Duration::ZERO, "nul: \0", 0);
    given.await.unwrap();
}

/// Two nodes on one database.
async fn two() -> (Fixture, Fixture) {
    let here = Fixture::new().await;
    let there = here.beside().await;
    (here, there)
}

/// Waits until a connection waits for a lock.
async fn waits(fixture: &Fixture) {
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually(PATIENCE, async || fixture.count(waiting).await == 1).await;
}

fn checkout() -> Definition<Tx> {
    Definition::new("checkout", 1)
}

async fn start(store: &Postgres, id: &str) {
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    let new = checkout().begin(id, None, Bytes::new());
    assert!(tx.start_saga(&new).await.unwrap());
    tx.commit().await.unwrap();
}

async fn take(store: &Postgres, limit: usize) -> Vec<SagaRecord> {
    let kinds = [checkout().kind().clone()];
    store.take_sagas(&kinds, LEASE, limit).await.unwrap()
}

async fn next(store: &Postgres) -> Option<Timestamp> {
    let kinds: [Kind; 1] = [checkout().kind().clone()];
    store.next_saga(&kinds).await.unwrap()
}

async fn give_back(store: &Postgres, saga: &SagaRecord, pause: Duration) {
    let (owned, signals_seen) = (Owned::of(saga), saga.signals.len());
    let given = store.give_back_saga(&owned, pause, "a test", signals_seen);
    given.await.unwrap();
}

fn step(name: &str) -> StepRecord {
    StepRecord {
        name: name.to_owned(),
        direction: Direction::Forward,
        state: StepState::Done,
        provider_key: None,
        request: Bytes::new(),
        made: Bytes::new(),
        error: None,
        attempts: 1,
        next_at: Timestamp::from_millis(1_000),
        began_at: Timestamp::from_millis(1_000),
        ended_at: Some(Timestamp::from_millis(1_000)),
    }
}
