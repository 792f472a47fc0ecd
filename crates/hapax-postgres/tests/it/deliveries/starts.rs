//! Starts on PostgreSQL: events whose transactions were open when a destination started, and events
//! whose times do not rise with their ids.

use hapax::{
    Timestamp,
    delivery::{Checkpoint, Frontier, Settlement, Shards, Start},
    store::{Partitions, Settlements, Source, Starts},
};
use hapax_postgres::Postgres;
use hapax_testkit::wait::eventually;

use super::{EMIT, emitted};
use crate::fixture::{Fixture, PATIENCE};

/// The first destination has no other one whose floors it could use, the second one has.
#[tokio::test]
async fn an_event_of_a_transaction_that_was_open_at_the_start_is_delivered() {
    let fixture = emitted(3).await;
    let store = &fixture.store;
    let emit = async || fixture.plain.execute(EMIT, &[&1_i32]).await.unwrap();
    let mut last = 3;
    for destination in ["first", "second"] {
        let partitions = [0, 1].map(|number| format!("{destination}/{number}"));
        let mut other = fixture.database.client().await;
        let open = other.transaction().await.unwrap();
        open.execute(EMIT, &[&2_i32]).await.unwrap();
        emit().await;
        let recorded = store.record_start(destination, Start::Now).await;
        assert!(recorded.unwrap());
        emit().await;
        let start = opened(store, &partitions[0]).await;
        assert_eq!(start.high, last + 3);
        let (read, frontier) = read_all(store, start).await;
        assert_eq!(read, [last + 4]);
        open.commit().await.unwrap();
        let (late, mut frontier) = read_all(store, frontier).await;
        assert_eq!(late, [last + 1, last + 2]);
        // A partition that is opened later starts at the same position.
        let start = opened(store, &partitions[1]).await;
        let (read, _) = read_all(store, start).await;
        assert_eq!(read, [last + 1, last + 2, last + 4]);
        // There are floors as soon as the log of the sequence is flushed.
        eventually(PATIENCE, async || {
            frontier = read_all(store, frontier.clone()).await.1;
            floors(&frontier) != "0@0"
        })
        .await;
        for partition in &partitions {
            settle(store, partition, frontier.clone()).await;
        }
        last += 4;
    }
    let used = "SELECT count(*) FROM hapax.start WHERE split_part(snapshot, ' ', 7) <> '0@0'";
    assert_eq!(fixture.count(used).await, 1);
}

/// An id that was drawn by a transaction that is rolled back hides no later event, and neither does
/// a transaction that has a number but no id yet.
#[tokio::test]
async fn a_start_among_transactions_that_roll_back_skips_no_later_event() {
    let fixture = emitted(2).await;
    let mut one = fixture.database.client().await;
    let mut two = fixture.database.client().await;
    let lost = one.transaction().await.unwrap();
    lost.execute(EMIT, &[&1_i32]).await.unwrap();
    let idle = two.transaction().await.unwrap();
    let number = "SELECT pg_current_xact_id()::text";
    idle.query_one(number, &[]).await.unwrap();
    let recorded = fixture.store.record_start("hook", Start::Now).await;
    assert!(recorded.unwrap());
    lost.rollback().await.unwrap();
    idle.execute(EMIT, &[&2_i32]).await.unwrap();
    idle.commit().await.unwrap();
    let start = opened(&fixture.store, "hook").await;
    let (read, _) = read_all(&fixture.store, start).await;
    assert_eq!(read, [4, 5]);
}

/// The newest checkpoint of another partition has no floors yet, an older one has.
#[tokio::test]
async fn a_start_has_the_floors_of_a_partition_that_has_some() {
    let fixture = emitted(3).await;
    let store = &fixture.store;
    let mut frontier = opened(store, "known").await;
    eventually(PATIENCE, async || {
        frontier = read_all(store, frontier.clone()).await.1;
        floors(&frontier) != "0@0"
    })
    .await;
    settle(store, "known", frontier.clone()).await;
    let text = frontier.snapshot.as_deref().unwrap();
    let without = text.replace(floors(&frontier), "0@0");
    let without = Frontier {
        snapshot: Some(without.into()),
        ..frontier.clone()
    };
    settle(store, "new", without).await;
    let recorded = store.record_start("hook", Start::Now).await;
    assert!(recorded.unwrap());
    let start = opened(store, "hook").await;
    assert_eq!(floors(&start), floors(&frontier));
}

/// The rows of a table source keep the times at which the service wrote them.
#[tokio::test]
async fn a_start_at_a_time_skips_no_newer_event_before_adopted_rows() {
    let fixture = Fixture::new().await;
    for (age, count) in [
        ("3 hours", 3),
        ("30 minutes", 20),
        ("9 days", 40),
        ("10 minutes", 5),
    ] {
        emit_aged(&fixture, age, count).await;
    }
    let start = started_an_hour_ago(&fixture).await;
    assert_eq!(start.high, 3);
}

/// The search begins with the rotation that was open at that time.
#[tokio::test]
async fn a_start_at_a_time_finds_the_first_event_of_a_later_rotation() {
    let fixture = Fixture::new().await;
    emit_aged(&fixture, "3 hours", 3).await;
    let rotate = "SELECT hapax.rotate(0, now() - interval '2 hours')";
    fixture.run(rotate).await;
    emit_aged(&fixture, "30 minutes", 2).await;
    let start = started_an_hour_ago(&fixture).await;
    assert_eq!(start.high >> 36, 1);
    let (read, _) = read_all(&fixture.store, start).await;
    assert_eq!(read.len(), 2);
}

/// Emits events that were created some time ago.
async fn emit_aged(fixture: &Fixture, age: &str, count: u32) {
    let emit = format!(
        "INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
         SELECT gen_random_uuid(), 'a', '{{}}', '{{}}', now() - interval '{age}'
         FROM generate_series(1, {count})"
    );
    fixture.run(&emit).await;
}

/// Where a destination starts that starts with the events of the last hour.
async fn started_an_hour_ago(fixture: &Fixture) -> Frontier {
    let time = "SELECT (extract(epoch FROM now() - interval '1 hour') * 1000)::bigint";
    let time = Timestamp::from_millis(fixture.count(time).await);
    let recorded = fixture.store.record_start("hook", Start::At(time)).await;
    assert!(recorded.unwrap());
    opened(&fixture.store, "hook").await
}

/// The floors in the text of a frontier.
fn floors(frontier: &Frontier) -> &str {
    let text = frontier.snapshot.as_deref().unwrap_or_default();
    text.split(' ').nth(6).unwrap_or_default()
}

async fn opened(store: &Postgres, partition: &str) -> Frontier {
    let opened = store.open(partition).await.unwrap();
    opened.checkpoint.frontier
}

/// The positions of all events after a frontier, and the frontier after them.
async fn read_all(store: &Postgres, mut frontier: Frontier) -> (Vec<i64>, Frontier) {
    let mut read = Vec::new();
    loop {
        let batch = Source::read(store, &frontier, Shards::ALL, 100).await;
        let batch = batch.unwrap();
        frontier = batch.frontier;
        if batch.events.is_empty() {
            return (read, frontier);
        }
        read.extend(batch.events.iter().map(|event| event.position));
    }
}

async fn settle(store: &Postgres, partition: &str, frontier: Frontier) {
    let settlement = Settlement {
        destination: partition.to_owned(),
        epoch: store.open(partition).await.unwrap().epoch,
        checkpoint: Some(Checkpoint {
            frontier,
            ..Checkpoint::default()
        }),
        ..Settlement::default()
    };
    store.settle(settlement).await.unwrap();
}
