//! Retention: what this store keeps in addition to the conformance suite.

use std::{sync::Arc, time::Duration};

use hapax::{
    delivery::{Checkpoint, Frontier, KnownDestinations, Settlement, Shards},
    event::{Headers, NewEvent},
    retention::{Ages, Retention},
    store::{Keys, Outbox, Partitions, Settlements, Source, StoreError, Transaction},
};

use hapax_sqlite::rusqlite::Connection;

use crate::fixture::{Fixture, plan};

/// A trigger that inserts an expired key again as soon as it is deleted.
const EXPIRE_AGAIN: &str = "
    CREATE TRIGGER again AFTER DELETE ON hapax_idempotency_key BEGIN
        INSERT INTO hapax_idempotency_key
            (tenant, operation, key, fingerprint, state, epoch, on_expired, created_at, expires_at)
        VALUES (old.tenant, old.operation, old.key, old.fingerprint, old.state, old.epoch,
            old.on_expired, old.created_at, old.expires_at);
    END";

const DAY: Duration = Duration::from_hours(24);

#[tokio::test]
async fn the_newest_event_stays_so_that_its_position_is_not_given_again() {
    let fixture = Fixture::new().await;
    pass_two(&fixture).await;
    assert_eq!(fixture.store.purge_events(DAY, DAY).await.unwrap(), 1);
    assert_eq!(fixture.store.purge_events(DAY, DAY).await.unwrap(), 0);
    let left = Source::read(&fixture.store, &Frontier::default(), Shards::ALL, 10)
        .await
        .unwrap()
        .events;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].event.payload.bytes(), b"\"newest\"");
}

#[tokio::test]
async fn what_a_new_destination_has_not_seen_stays_though_it_was_chosen_before() {
    let fixture = Fixture::new().await;
    pass_two(&fixture).await;
    let held = fixture.hold().await;
    let store = fixture.store.clone();
    let opening = tokio::spawn(async move { Partitions::open(&store, "new").await });
    fixture.queued(1).await;
    let store = fixture.store.clone();
    let purging = tokio::spawn(async move { store.purge_events(DAY, DAY).await });
    fixture.queued(2).await;
    held.let_go().await;
    opening.await.unwrap().unwrap();
    assert_eq!(purging.await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn keys_that_expire_without_end_keep_no_event_from_going() {
    let fixture = Fixture::new().await;
    pass_two(&fixture).await;
    let again = |conn: &Connection| conn.execute_batch(EXPIRE_AGAIN);
    fixture.store.write(again).await.unwrap();
    let ages = Ages {
        events: DAY,
        ..Ages::default()
    };
    let kinds = Retention::new()
        .keys(&fixture.store)
        .events(&fixture.store, ages)
        .sagas(&fixture.store, ages);
    assert!(kinds.round().await, "expired keys are left");
    assert_eq!(events(&fixture).await, 1);
}

#[tokio::test]
async fn a_kind_that_fails_keeps_no_other_from_going() {
    let fixture = Fixture::new().await;
    pass_two(&fixture).await;
    let ages = Ages {
        events: DAY,
        ..Ages::default()
    };
    let fails = || async { Err(StoreError::TimedOut) };
    let kinds = Retention::new()
        .and("fails", fails)
        .events(&fixture.store, ages);
    assert!(!kinds.round().await);
    assert_eq!(events(&fixture).await, 1);
}

/// Timestamps of a clock that was ahead neither keep events from being deleted nor delete them
/// early.
#[tokio::test]
async fn stamps_of_the_future_keep_no_event_from_going() {
    const AHEAD: Duration = Duration::from_hours(24 * 365);
    let fixture = Fixture::new().await;
    let right = fixture.clock.now();
    fixture.clock.advance(AHEAD);
    emit(&fixture, 1_200).await;
    fixture.clock.set(right.after(Duration::from_secs(1)));
    emit(&fixture, 700).await;
    pass(&fixture, "hook", 10_000).await;
    purge(&fixture).await;
    assert_eq!(events(&fixture).await, 1_900, "none of these events is old");
    fixture.clock.advance(2 * DAY);
    emit(&fixture, 3).await;
    pass(&fixture, "hook", 10_000).await;
    purge(&fixture).await;
    assert_eq!(events(&fixture).await, 3);
}

/// As on PostgreSQL, retention waits for an absent destination as long as events are kept.
#[tokio::test]
async fn a_destination_that_nobody_carries_any_more_is_not_waited_for_for_ever() {
    let fixture = Fixture::new().await;
    pass(&fixture, "left", 1).await;
    let relay = Arc::new(KnownDestinations::default());
    relay.set(["hook".to_owned()].into());
    fixture.store.follow(Arc::downgrade(&relay));
    emit(&fixture, 5).await;
    check_kept(&fixture, 2, 5).await;
    // A relay has served it since, so the wait starts again.
    pass(&fixture, "left", 1).await;
    check_kept(&fixture, 2, 4).await;
    check_kept(&fixture, 1, 1).await;
    let opened = Partitions::open(&fixture.store, "left").await.unwrap();
    let from = opened.checkpoint.frontier;
    emit(&fixture, 2).await;
    let left = Source::read(&fixture.store, &from, Shards::ALL, 10).await;
    assert_eq!(
        left.unwrap().events.len(),
        3,
        "it continues with the events that are left"
    );
}

#[tokio::test]
async fn a_destination_is_waited_for_while_nobody_can_say_that_it_is_gone() {
    let fixture = Fixture::new().await;
    emit(&fixture, 5).await;
    pass(&fixture, "left", 1).await;
    // No relay is running.
    check_kept(&fixture, 4, 4).await;
    // A relay knows the destination but does not serve it, because it is paused.
    let relay = Arc::new(KnownDestinations::default());
    relay.set(["hook".to_owned(), "left".to_owned()].into());
    fixture.store.follow(Arc::downgrade(&relay));
    check_kept(&fixture, 4, 4).await;
    // The destination is disabled.
    relay.set(["hook".to_owned()].into());
    let opened = Partitions::open(&fixture.store, "left").await.unwrap();
    let disable = Settlement {
        destination: "left".to_owned(),
        epoch: opened.epoch,
        disable: Some("gone".to_owned()),
        ..Settlement::default()
    };
    fixture.store.settle(disable).await.unwrap();
    check_kept(&fixture, 4, 4).await;
}

/// Advances the clock by `times` times 20 hours while "hook" is served, and checks that `count`
/// events are left.
async fn check_kept(fixture: &Fixture, times: u32, count: i64) {
    for _ in 0..times {
        fixture.clock.advance(Duration::from_hours(20));
        pass(fixture, "hook", 10_000).await;
        purge(fixture).await;
    }
    assert_eq!(events(fixture).await, count);
}

async fn purge(fixture: &Fixture) {
    while fixture.store.purge_events(DAY, DAY).await.unwrap() > 0 {}
}

async fn emit(fixture: &Fixture, count: usize) {
    let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
    for number in 0..count {
        tx.emit(NewEvent::json("note.made", &number)).unwrap();
    }
    tx.commit().await.unwrap();
}

/// Lets a destination read `count` more events.
async fn pass(fixture: &Fixture, name: &str, count: usize) {
    let opened = Partitions::open(&fixture.store, name).await.unwrap();
    let from = opened.checkpoint.frontier;
    let read = Source::read(&fixture.store, &from, Shards::ALL, count).await;
    let passed = Settlement {
        destination: name.to_owned(),
        epoch: opened.epoch,
        checkpoint: Some(Checkpoint {
            frontier: read.unwrap().frontier,
            ..Checkpoint::default()
        }),
        ..Settlement::default()
    };
    fixture.store.settle(passed).await.unwrap();
}

/// The number of events in the store.
async fn events(fixture: &Fixture) -> i64 {
    let count = |conn: &Connection| {
        conn.query_row("SELECT count(*) FROM hapax_outbox_event", [], |row| {
            row.get(0)
        })
    };
    fixture.store.read(count).await.unwrap()
}

/// Writes two events, lets a destination read them, and waits until they are old.
async fn pass_two(fixture: &Fixture) {
    for key in ["first", "newest"] {
        fixture.store.execute_plan(plan(key)).await.unwrap();
    }
    pass(fixture, "hook", 10).await;
    fixture.clock.advance(2 * DAY);
}
