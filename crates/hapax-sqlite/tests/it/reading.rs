//! Bounds of one read of the outbox or of parked deliveries.

use std::time::Duration;

use hapax::{
    delivery::{Checkpoint, Frontier, Park, ParkedState, Settlement, Shards},
    event::{Headers, NewEvent},
    limits::READ_BYTES,
    store::{Keys, Partitions, Settlements, Source, Transaction},
};
use hapax_sqlite::rusqlite::Connection;

use crate::fixture::{Fixture, INSERT};

#[tokio::test]
async fn parked_deliveries_are_read_by_the_bytes_too() {
    let fixture = Fixture::new().await;
    emit(&fixture, 12, &"x".repeat(1_000_000)).await;
    park(&fixture, 12).await;
    let due = fixture.store.due("hook", &[], 100, 0).await.unwrap();
    let bytes: usize = due
        .iter()
        .map(|parked| parked.event.event.payload.bytes().len())
        .sum();
    assert!(!due.is_empty());
    assert!(bytes <= READ_BYTES + 1_000_002, "{bytes} bytes in one read");
}

#[tokio::test]
async fn what_cannot_be_read_hides_nothing_before_it() {
    let fixture = Fixture::new().await;
    emit(&fixture, 3, "small").await;
    park(&fixture, 3).await;
    tear(&fixture, 2).await;
    let due = fixture.store.due("hook", &[], 100, 0).await.unwrap();
    assert_eq!(due.len(), 1);
    let events = Source::read(&fixture.store, &Frontier::default(), Shards::ALL, 10)
        .await
        .unwrap();
    assert_eq!((events.events.len(), events.frontier.high), (1, 1));
    assert!(
        Source::read(&fixture.store, &events.frontier, Shards::ALL, 10)
            .await
            .is_err()
    );
    assert!(fixture.store.due("hook", &[1], 100, 0).await.is_err());
}

#[tokio::test]
async fn a_read_that_leaves_a_transaction_open_hides_nothing_from_the_next() {
    let fixture = Fixture::with(|settings| settings.readers = 1).await;
    let left_open = fixture.store.read(|conn| {
        conn.execute_batch("BEGIN")?;
        conn.query_row("SELECT count(*) FROM note", [], |row| row.get::<_, i64>(0))?;
        conn.query_row("SELECT 1 WHERE 0", [], |row| row.get::<_, i64>(0))
    });
    assert!(left_open.await.is_err());
    let note = fixture.store.write(|conn| conn.execute(INSERT, ["new"]));
    note.await.unwrap();
    assert_eq!(fixture.notes().await, ["new"]);
}

async fn emit(fixture: &Fixture, count: usize, text: &str) {
    let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
    for _ in 0..count {
        tx.emit(NewEvent::json("a", &text)).unwrap();
    }
    tx.commit().await.unwrap();
}

async fn park(fixture: &Fixture, count: i64) {
    let opened = fixture.store.open("hook").await.unwrap();
    let frontier = Frontier {
        high: count,
        snapshot: None,
    };
    let park = (1..=count).map(|position| Park {
        position,
        state: ParkedState::Retrying,
        attempt: 1,
        next_at: fixture.clock.now(),
        order_key: None,
        last_error: None,
    });
    let settlement = Settlement {
        destination: "hook".to_owned(),
        epoch: opened.epoch,
        checkpoint: Some(Checkpoint {
            frontier,
            ..Checkpoint::default()
        }),
        park: park.collect(),
        ..Settlement::default()
    };
    fixture.store.settle(settlement).await.unwrap();
    fixture.clock.advance(Duration::from_secs(1));
}

async fn tear(fixture: &Fixture, position: i64) {
    let tear = move |rows: &Connection| {
        let sql = "UPDATE hapax_outbox_event SET headers = 'torn' WHERE id = ?1";
        rows.execute(sql, [position])
    };
    assert_eq!(fixture.store.write(tear).await.unwrap(), 1);
}
