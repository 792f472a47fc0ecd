//! An operator's handle and the store's writer take turns, and neither falsifies what the other
//! relies on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hapax::{
    admin::{AdminError, DestinationAdmin as _, EventFilter, JobAdmin as _, JobOptions},
    event::{Headers, NewEvent},
    failpoint::Failpoints,
    store::{Keys as _, Outbox as _, StoreError, Transaction as _},
};
use hapax_sqlite::{OpenError, SqliteAdmin, rusqlite::Connection};
use hapax_testkit::assert_matches;
use tokio::task::JoinSet;

use super::scene::{beside, emit, number, ops, pass, work};
use crate::fixture::Fixture;

#[tokio::test]
async fn a_busy_database_is_told_apart_from_a_broken_one() {
    let fixture = Fixture::new().await;
    pass(&fixture.store, "orders", 0, &[]).await;
    let admin = beside(&fixture);
    let other = Connection::open(fixture.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    let busy = admin.pause_destination(ops(), "orders").await;
    assert_matches!(busy, Err(AdminError::Busy));
    assert!(
        began.elapsed() >= Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    // A read needs no lock.
    assert_eq!(admin.partitions(None).await.unwrap().len(), 1);
    other.execute_batch("ROLLBACK").unwrap();
    assert!(admin.pause_destination(ops(), "orders").await.unwrap());
    assert_eq!(
        number(&fixture.path(), "SELECT count(*) FROM hapax_audit_log"),
        1
    );

    other.execute_batch("DROP TABLE hapax_audit_log").unwrap();
    let broken = admin.resume_destination(ops(), "orders").await;
    assert_matches!(
        broken,
        Err(AdminError::Store(StoreError::Unavailable { .. }))
    );
}

#[tokio::test]
async fn opening_tells_a_locked_database_apart() {
    let fixture = Fixture::new().await;
    fixture.store.close().await.unwrap();
    let other = Connection::open(fixture.path()).unwrap();
    other
        .execute_batch("PRAGMA locking_mode = exclusive; BEGIN EXCLUSIVE")
        .unwrap();
    other
        .execute_batch("CREATE TABLE receipt (id INTEGER); COMMIT")
        .unwrap();
    let refused = SqliteAdmin::open(fixture.settings()).unwrap_err();
    assert_matches!(refused, OpenError::Busy { .. });
}

/// The lock is free between two groups for some tens of microseconds only.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_under_load_delays_an_operator_little_and_loses_no_write() {
    let fixture = Fixture::with(|it| it.group_max = 8).await;
    pass(&fixture.store, "orders", 0, &[]).await;
    let (stop, written) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut clients = JoinSet::new();
    for _ in 0..32 {
        let (store, stop) = (fixture.store.clone(), Arc::clone(&stop));
        let written = Arc::clone(&written);
        clients.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let mut tx = store.begin(None, Headers::new()).await.unwrap();
                tx.emit(NewEvent::json("order.created", &1)).unwrap();
                tx.commit().await.unwrap();
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let admin = beside(&fixture);
    let mut longest = Duration::ZERO;
    for turn in 0..50 {
        let began = Instant::now();
        let turned = if turn % 2 == 0 {
            admin.pause_destination(ops(), "orders").await
        } else {
            admin.resume_destination(ops(), "orders").await
        };
        assert!(turned.unwrap());
        longest = longest.max(began.elapsed());
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    let events = number(&fixture.path(), "SELECT count(*) FROM hapax_outbox_event");
    assert_eq!(events.unsigned_abs(), written.load(Ordering::Relaxed));
    assert_eq!(
        number(&fixture.path(), "SELECT count(*) FROM hapax_audit_log"),
        50
    );
    assert!(longest < Duration::from_secs(1), "{longest:?}");
}

/// The writer gives positions from its memory. An operator takes none, and the ids stay in order.
#[tokio::test]
async fn events_keep_their_order_while_an_operator_writes() {
    let fixture = Fixture::new().await;
    emit(&fixture.store, 3).await;
    pass(&fixture.store, "orders", 3, &[2]).await;
    let admin = beside(&fixture);
    let (filter, options) = (EventFilter::default(), JobOptions::default());
    let job = admin.start_event_job(ops(), "orders", &filter, None, &options);
    job.await.unwrap();
    emit(&fixture.store, 2).await;
    work(&admin).await;
    emit(&fixture.store, 2).await;
    let path = fixture.path();
    assert_eq!(number(&path, "SELECT count(*) FROM hapax_outbox_event"), 7);
    assert_eq!(number(&path, "SELECT max(id) FROM hapax_outbox_event"), 7);
    assert_eq!(
        number(
            &path,
            "SELECT count(*) FROM hapax_delivery WHERE manual = 1"
        ),
        3
    );
}

/// Retention finds the events that no delivery needs before it has the lock.
#[tokio::test(flavor = "multi_thread")]
async fn retention_keeps_an_event_that_an_operator_offers_again_meanwhile() {
    const AGAIN: &str = "INSERT INTO hapax_delivery
        (destination, position, state, attempt, next_at, changed_at, manual)
        VALUES ('orders', 1, 'scheduled', 0, 0, 0, 1)";
    let armed = Arc::new(AtomicBool::new(false));
    let struck = Arc::clone(&armed);
    let fixture = Fixture::with(|it| {
        let path = it.path.clone();
        it.group_max = 1;
        it.failpoints = Failpoints::calling(move |name| {
            if name == "sqlite.commit.after" && struck.swap(false, Ordering::SeqCst) {
                let operator = Connection::open(&path).unwrap();
                operator.execute(AGAIN, []).unwrap();
            }
        });
    })
    .await;
    emit(&fixture.store, 3).await;
    pass(&fixture.store, "orders", 3, &[]).await;
    fixture.clock.advance(Duration::from_mins(1));
    let held = fixture.hold().await;
    let store = fixture.store.clone();
    let age = Duration::from_secs(1);
    let purging = tokio::spawn(async move { store.purge_events(age, age).await });
    // The events are chosen, and the purge waits for the writer.
    fixture.queued(1).await;
    armed.store(true, Ordering::SeqCst);
    held.let_go().await;
    purging.await.unwrap().unwrap();
    assert!(!armed.load(Ordering::SeqCst));
    let path = fixture.path();
    // The newest event is always kept.
    assert_eq!(number(&path, "SELECT count(*) FROM hapax_outbox_event"), 2);
    assert_eq!(number(&path, "SELECT min(id) FROM hapax_outbox_event"), 1);
}

#[tokio::test]
async fn an_operator_writes_to_no_file_that_took_the_place_of_the_database() {
    let fixture = Fixture::new().await;
    pass(&fixture.store, "orders", 0, &[]).await;
    let admin = beside(&fixture);
    fixture.store.close().await.unwrap();
    std::fs::rename(fixture.path(), fixture.directory.path().join("moved.db")).unwrap();
    std::fs::write(fixture.path(), b"").unwrap();
    let refused = admin.pause_destination(ops(), "orders").await;
    assert_matches!(
        refused,
        Err(AdminError::Store(StoreError::Unavailable { .. }))
    );
}
