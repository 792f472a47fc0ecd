//! Failures: a full disk, a broken row, a closed store, and the state after each of them.

use hapax::{
    delivery::{Frontier, Shards},
    store::{ClaimOutcome, Effect, Keys, Source, StoreError, Transaction},
};
use hapax_sqlite::{
    Sqlite,
    rusqlite::{Connection, params},
};
use hapax_testkit::assert_matches;

use crate::fixture::{Fixture, claim, note, notes, plan, response, settings};

const BLOB: &str = "INSERT INTO note (text) VALUES (hex(randomblob(?1)))";

/// Writes until the disk is full, and returns the error.
async fn fill(store: &Sqlite) -> StoreError {
    for bytes in [100_000, 10_000, 1_000, 100] {
        loop {
            match store.write(move |conn| conn.execute(BLOB, [bytes])).await {
                Ok(_) => {}
                Err(StoreError::Unavailable { .. }) if bytes > 100 => break,
                Err(error) => return error,
            }
        }
    }
    panic!("the disk should be full by now")
}

#[tokio::test]
async fn a_full_disk_is_unavailable_until_there_is_space_again() {
    let fixture = Fixture::with(|settings| settings.pages_max = Some(200)).await;
    fixture.store.execute_plan(plan("before")).await.unwrap();
    let full = fill(&fixture.store).await;
    assert_matches!(full, StoreError::Unavailable { .. });
    assert!(
        full.error_chain().contains("full"),
        "{}",
        full.error_chain()
    );
    let mut large = plan("during");
    large.response.body = vec![b'x'; 100_000].into();
    let refused = fixture.store.execute_plan(large).await;
    assert_matches!(refused, Err(StoreError::Unavailable { .. }));
    assert!(
        fixture.notes().await.contains(&"before".to_owned()),
        "earlier rows can still be read"
    );
    let delete = |conn: &Connection| conn.execute("DELETE FROM note WHERE text <> 'before'", []);
    fixture.store.write(delete).await.unwrap();
    fixture.store.execute_plan(plan("after")).await.unwrap();
    assert_eq!(fixture.notes().await, ["after", "before"]);
}

#[tokio::test]
async fn a_full_disk_fails_an_open_transaction_whole() {
    let fixture = Fixture::with(|settings| settings.pages_max = Some(200)).await;
    fill(&fixture.store).await;
    let mut tx = fixture.claim("k").await;
    let full = tx.with(|conn| conn.execute(BLOB, [100_000])).await;
    assert_matches!(full, Err(StoreError::Unavailable { .. }));
    let ended = tx.complete(&response(), Effect::Keep).await;
    assert!(ended.is_err());
    assert!(matches!(
        fixture.store.claim(claim("k")).await,
        Ok(ClaimOutcome::Open(_))
    ));
}

#[tokio::test]
async fn a_foreign_tool_that_holds_the_file_makes_it_unavailable() {
    let fixture = Fixture::new().await;
    let tool = Connection::open(fixture.path()).unwrap();
    tool.execute_batch("BEGIN IMMEDIATE").unwrap();
    let busy = fixture.store.execute_plan(plan("k")).await;
    assert_matches!(busy, Err(StoreError::Unavailable { .. }));
    tool.execute_batch("ROLLBACK").unwrap();
    fixture.store.execute_plan(plan("k")).await.unwrap();
    assert_eq!(fixture.notes().await, ["k"]);
}

#[tokio::test]
async fn a_stored_row_that_cannot_be_read_is_named() {
    let fixture = Fixture::new().await;
    fixture.store.execute_plan(plan("k")).await.unwrap();
    let tear = |conn: &Connection| {
        conn.execute("UPDATE hapax_outbox_event SET headers = 'torn'", [])?;
        let sql = "UPDATE hapax_idempotency_key SET response_headers = ?1";
        conn.execute(sql, params![b"torn".as_slice()])
    };
    fixture.store.write(tear).await.unwrap();
    let read = Source::read(&fixture.store, &Frontier::default(), Shards::ALL, 10).await;
    assert_matches!(read, Err(StoreError::Corrupt { .. }));
    let claimed = fixture.store.claim(claim("k")).await;
    assert_matches!(claimed, Err(StoreError::Corrupt { .. }));
}

#[tokio::test]
async fn a_closed_store_says_so_and_its_file_can_be_opened_again() {
    let fixture = Fixture::new().await;
    fixture.store.execute_plan(plan("kept")).await.unwrap();
    fixture.store.close().await.unwrap();
    let closed = fixture.store.execute_plan(plan("late")).await;
    assert_matches!(closed, Err(StoreError::Unavailable { .. }));
    let read = fixture.store.look_up(&claim("kept").scope).await;
    assert_matches!(read, Err(StoreError::Unavailable { .. }));
    let again = Sqlite::open(fixture.settings()).unwrap();
    assert_eq!(notes(&again).await, ["kept"]);
}

#[tokio::test]
async fn what_was_acknowledged_is_in_a_copy_of_the_files_taken_right_then() {
    let fixture = Fixture::new().await;
    let mut tx = fixture.claim("acknowledged").await;
    note(&mut tx, "acknowledged").await;
    tx.complete(&response(), Effect::Keep).await.unwrap();
    // The files as after a crash: the log is not merged, and no process holds the lock.
    let copy = tempfile::tempdir().unwrap();
    for name in ["test.db", "test.db-wal"] {
        std::fs::copy(fixture.directory.path().join(name), copy.path().join(name)).unwrap();
    }
    let crashed = Sqlite::open(settings(copy.path().join("test.db"), &fixture.clock)).unwrap();
    assert_eq!(notes(&crashed).await, ["acknowledged"]);
    let taken = crashed.claim(claim("acknowledged")).await.unwrap();
    assert_matches!(taken, ClaimOutcome::Taken(_));
}

#[tokio::test]
async fn dropping_the_last_handle_finishes_what_is_queued() {
    let fixture = Fixture::new().await;
    let settings = fixture.settings();
    fixture.insert("queued").await;
    drop(fixture.store);
    let again = Sqlite::open(settings).unwrap();
    assert_eq!(notes(&again).await, ["queued"]);
}
