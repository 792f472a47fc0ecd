//! Crashes of a table source: wherever its connection is cut, a row is either in the table or
//! moved, never both or neither.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax_postgres::{Imported, TableSource};
use hapax_testkit::wait::eventually;

use super::{
    TOPIC, events, imported,
    status::{self, STATUS},
    topic,
};
use crate::fixture::{Fixture, PATIENCE};

const ROWS: usize = 1_000;
const BATCH: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_at_any_moment_lose_and_repeat_nothing() {
    check_cuts(TOPIC, topic(), "published_at IS NOT NULL").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_leave_the_status_that_agrees_with_the_outbox() {
    let published = "status = 'processed' AND processed_at IS NOT NULL";
    check_cuts(STATUS, status::table(), published).await;
}

/// Two movers, whose connections are cut while they move the rows of a table.
async fn check_cuts(ddl: &str, mut table: TableSource, published: &str) {
    table.batch = BATCH;
    let (fixture, first) = imported(ddl, table.clone()).await;
    let other = Fixture::on(Arc::clone(&fixture.database), |_| {}).await;
    let second = Imported::open(&other.store, table).await.unwrap();
    fixture
        .run(&format!(
            "INSERT INTO outbox (topic, payload)
             SELECT 'a', number::text FROM generate_series(1, {ROWS}) AS number"
        ))
        .await;
    let done = Arc::new(AtomicBool::new(false));
    let movers = [first, second].map(|imported| {
        let done = Arc::clone(&done);
        tokio::spawn(async move {
            let mut failed = 0;
            while !done.load(Ordering::Relaxed) {
                // Errors from cut connections are expected here.
                failed += u32::from(imported.move_batch().await.is_err());
            }
            failed
        })
    });
    let (mut cut, mut before) = (0, 0);
    eventually(PATIENCE, async || {
        let moved = format!("SELECT count(*) FROM outbox WHERE {published}");
        let moved = usize::try_from(fixture.count(&moved).await).unwrap();
        if moved > before {
            // The next cut hits the mover in an arbitrary statement.
            before = moved;
            cut += fixture.database.terminate_backends("hapax").await;
        }
        moved == ROWS
    })
    .await;
    done.store(true, Ordering::Relaxed);
    let mut failed = 0;
    for mover in movers {
        failed += mover.await.unwrap();
    }
    assert!(
        cut > 0 && failed > 0,
        "{cut} connections were cut, {failed} batches failed"
    );
    let events = events(&fixture).await;
    let payloads = events.iter().map(|it| it.event.payload.bytes());
    let numbers: Vec<usize> = payloads
        .map(|it| String::from_utf8_lossy(it).parse().unwrap())
        .collect();
    let expected: Vec<_> = (1..=ROWS).collect();
    assert_eq!(
        numbers, expected,
        "expected each row once, in the order of the ids"
    );
    let ids: BTreeSet<_> = events.iter().map(|it| it.event.id).collect();
    assert_eq!(ids.len(), ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_dropped_in_the_middle_leaves_its_rows() {
    let (fixture, imported) = imported(TOPIC, topic()).await;
    fixture
        .run("INSERT INTO outbox (topic, payload) SELECT 'a', '{}' FROM generate_series(1, 400)")
        .await;
    let other = fixture.database.client().await;
    other
        .batch_execute("BEGIN; LOCK TABLE hapax.set_aside")
        .await
        .unwrap();
    let moving = tokio::time::timeout(Duration::from_millis(100), imported.move_batch()).await;
    assert!(moving.is_err(), "the batch did not wait for the lock");
    other.batch_execute("COMMIT").await.unwrap();
    fixture.idle().await;
    let moved = "SELECT count(*) FROM outbox WHERE published_at IS NOT NULL";
    let moved = usize::try_from(fixture.count(moved).await).unwrap();
    assert_eq!(
        events(&fixture).await.len(),
        moved,
        "the events and the published rows differ in number"
    );
}
