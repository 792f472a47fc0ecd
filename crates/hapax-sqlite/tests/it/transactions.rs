//! Interactive transactions: how they end, and that they cannot hold the writer for long.

use std::time::Duration;

use hapax::{
    delivery::{Frontier, Shards},
    event::{Headers, NewEvent},
    idempotency::Taken,
    limits::READ_BYTES,
    outbox::EventError,
    store::{ClaimOutcome, Effect, Keys, Source, StoreError, Transaction},
};
use hapax_sqlite::rusqlite::Connection;
use hapax_testkit::assert_matches;

use crate::fixture::{Fixture, INSERT, claim, note, response};

#[tokio::test]
async fn a_stalled_transaction_is_rolled_back_and_told_so() {
    let fixture = Fixture::with(|settings| settings.tx_max = Duration::from_secs(1)).await;
    let mut tx = fixture.claim("stalled").await;
    note(&mut tx, "stalled").await;
    // This write waits until the stalled transaction is rolled back.
    fixture.insert("next").await;
    let late = tx.with(|conn| conn.execute(INSERT, ["late"])).await;
    assert_matches!(late, Err(StoreError::TimedOut));
    let ended = tx.complete(&response(), Effect::Keep).await;
    assert_matches!(ended, Err(StoreError::TimedOut));
    assert_eq!(fixture.notes().await, ["next"]);
    assert!(matches!(
        fixture.store.claim(claim("stalled")).await,
        Ok(ClaimOutcome::Open(_))
    ));
}

#[tokio::test]
async fn what_is_committed_is_flushed_whatever_a_closure_asks_for() {
    const FULL: i64 = 2;
    let fixture = Fixture::with(|_| ()).await;
    let lowered = |conn: &Connection| conn.execute_batch("PRAGMA synchronous = OFF");
    let lowered = fixture.store.write(lowered).await;
    assert!(lowered.is_err(), "{lowered:?}");
    let settings = |conn: &Connection| {
        let of = |pragma: &str| format!("PRAGMA {pragma}");
        let level: i64 = conn.query_row(&of("synchronous"), [], |row| row.get(0))?;
        let journal: String = conn.query_row(&of("journal_mode"), [], |row| row.get(0))?;
        Ok((level, journal))
    };
    let settings = fixture.store.write(settings).await;
    assert_eq!(settings.ok(), Some((FULL, "wal".to_owned())));
}

/// A failing statement makes SQLite roll the transaction back, and the closure ignores the error.
#[tokio::test]
async fn behind_a_rollback_that_nobody_asked_for_nothing_is_written_alone() {
    let fixture = Fixture::new().await;
    let goes_on = |conn: &Connection| {
        conn.execute(INSERT, ["twice"])?;
        let again = "INSERT OR ROLLBACK INTO note (text) VALUES (?1)";
        assert!(conn.execute(again, ["twice"]).is_err());
        let _best_effort = conn.execute(INSERT, ["alone"]);
        Ok(())
    };
    let mut tx = fixture.claim("k").await;
    let _told = tx.with(goes_on).await;
    assert!(tx.complete(&response(), Effect::Keep).await.is_err());
    let written = fixture.store.write(goes_on).await;
    assert!(written.is_err(), "{written:?}");
    assert!(fixture.notes().await.is_empty());
    fixture.insert("next").await;
    assert_eq!(fixture.notes().await, ["next"]);
}

#[tokio::test]
async fn a_runaway_statement_is_interrupted() {
    let fixture = Fixture::with(|settings| settings.tx_max = Duration::from_millis(50)).await;
    let endless = |conn: &Connection| {
        let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                   SELECT count(*) FROM n";
        conn.query_row(sql, [], |row| row.get::<_, i64>(0))
    };
    let interrupted = fixture.store.write(endless).await;
    assert_matches!(interrupted, Err(StoreError::TimedOut));
    fixture.insert("next").await;
}

#[tokio::test]
async fn a_runaway_write_is_interrupted_and_leaves_nothing() {
    let fixture = Fixture::with(|settings| settings.tx_max = Duration::from_millis(50)).await;
    let endless = |conn: &Connection| {
        let sql = "INSERT INTO note WITH RECURSIVE n(i) AS (
                       SELECT 1 UNION ALL SELECT i + 1 FROM n
                   ) SELECT i FROM n";
        conn.execute(sql, [])
    };
    let interrupted = fixture.store.write(endless).await;
    assert_matches!(interrupted, Err(StoreError::TimedOut));
    fixture.insert("next").await;
    assert_eq!(fixture.notes().await, ["next"]);
}

#[tokio::test]
async fn uncommitted_writes_are_invisible() {
    let fixture = Fixture::new().await;
    let mut tx = fixture.claim("k").await;
    note(&mut tx, "open").await;
    assert!(fixture.notes().await.is_empty());
    let found = fixture.store.look_up(&claim("k").scope).await.unwrap();
    assert!(found.is_none(), "{found:?}");
    tx.complete(&response(), Effect::Keep).await.unwrap();
    assert_eq!(fixture.notes().await, ["open"]);
}

#[tokio::test]
async fn a_failed_closure_dooms_its_transaction_but_not_its_answer() {
    let fixture = Fixture::new().await;
    let mut tx = fixture.claim("k").await;
    note(&mut tx, "once").await;
    let twice = tx.with(|conn| conn.execute(INSERT, ["once"])).await;
    assert_matches!(twice, Err(StoreError::Statement { .. }));
    let after = tx.with(|conn| conn.execute(INSERT, ["after"])).await;
    assert_matches!(after, Err(StoreError::Statement { .. }));
    tx.complete(&response(), Effect::Drop).await.unwrap();
    assert!(fixture.notes().await.is_empty());
    let taken = fixture.store.claim(claim("k")).await.unwrap();
    assert_matches!(taken, ClaimOutcome::Taken(Taken::Replay { .. }));
}

#[tokio::test]
async fn a_doomed_transaction_keeps_no_effect() {
    let fixture = Fixture::new().await;
    let mut tx = fixture.claim("k").await;
    note(&mut tx, "half").await;
    let failed = tx
        .with(|conn| conn.execute("INSERT INTO nowhere VALUES (1)", []))
        .await;
    assert!(failed.is_err());
    let ended = tx.complete(&response(), Effect::Keep).await;
    assert_matches!(ended, Err(StoreError::Statement { .. }));
    assert!(fixture.notes().await.is_empty());
}

#[tokio::test]
async fn a_panic_in_a_closure_dooms_its_transaction_alone() {
    let fixture = Fixture::new().await;
    let mut tx = fixture.claim("k").await;
    let panicked = tx.with::<()>(|_| panic!("on purpose")).await;
    assert_matches!(panicked, Err(StoreError::Statement { .. }));
    tx.rollback().await;
    let mut tx = fixture.claim("k").await;
    note(&mut tx, "kept").await;
    tx.commit().await.unwrap();
    assert_eq!(fixture.notes().await, ["kept"]);
}

#[tokio::test]
async fn a_closure_cannot_end_its_transaction() {
    let fixture = Fixture::new().await;
    let mut tx = fixture.claim("k").await;
    note(&mut tx, "half").await;
    let ended = tx.with(|conn| conn.execute_batch("COMMIT; BEGIN")).await;
    assert_matches!(ended, Err(StoreError::Statement { .. }));
    drop(tx);
    fixture.store.write(|_| Ok(())).await.unwrap();
    assert!(fixture.notes().await.is_empty());
}

#[tokio::test]
async fn a_dropped_transaction_frees_the_writer_at_once() {
    let fixture = Fixture::with(|settings| settings.tx_max = Duration::from_hours(1)).await;
    let mut tx = fixture.claim("k").await;
    note(&mut tx, "lost").await;
    drop(tx);
    let tx = fixture.claim("k").await;
    tx.rollback().await;
    assert!(fixture.notes().await.is_empty());
}

#[tokio::test]
async fn a_read_stops_before_large_events_fill_the_memory() {
    let fixture = Fixture::new().await;
    let large = NewEvent::json("large", &"x".repeat(900_000));
    let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
    for _ in 0..6 {
        tx.emit(large.clone()).unwrap();
    }
    tx.commit().await.unwrap();
    let first = Source::read(&fixture.store, &Frontier::default(), Shards::ALL, 100)
        .await
        .unwrap();
    assert_eq!(
        first.events.len(),
        3,
        "the read stops after {READ_BYTES} bytes"
    );
    let rest = Source::read(&fixture.store, &first.frontier, Shards::ALL, 100)
        .await
        .unwrap();
    assert_eq!(rest.events.len(), 3);
}

#[tokio::test]
async fn a_payloads_content_type_is_nobody_elses_header() {
    let fixture = Fixture::new().await;
    let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
    let refused = tx.emit(NewEvent::json("a", &1).header("content-type", "text/plain"));
    assert_matches!(refused, Err(EventError::Malformed { .. }));
    tx.commit().await.unwrap();
    let batch = Source::read(&fixture.store, &Frontier::default(), Shards::ALL, 10).await;
    assert!(batch.unwrap().events.is_empty());
}
