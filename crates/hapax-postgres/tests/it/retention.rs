//! Retention among writers and destinations that come late.

use std::time::Duration;

use hapax::{
    delivery::{Checkpoint, Frontier, Settlement},
    store::{Deliveries, Outbox},
};
use tokio_postgres::Client;

use crate::fixture::Fixture;

const DAY: Duration = Duration::from_hours(24);
const EMIT: &str = "
    INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
    SELECT gen_random_uuid(), 'a', '{}', '{}', now() - interval '9 days'
    FROM generate_series(1, $1::int)";

#[tokio::test]
async fn an_old_event_that_commits_late_is_delivered_before_it_is_purged() {
    let fixture = Fixture::new().await;
    let late = fixture.database.client().await;
    late.batch_execute("BEGIN").await.unwrap();
    emit(&late, 1).await;
    emit(&fixture.plain, 2).await;
    assert_eq!(pass(&fixture, 10).await, [2, 3]);
    late.batch_execute("COMMIT").await.unwrap();
    assert_eq!(purge(&fixture).await, 2);
    assert_eq!(purge(&fixture).await, 0);
    assert_eq!(pass(&fixture, 10).await, [1]);
    assert_eq!(purge(&fixture).await, 1);
}

#[tokio::test]
async fn of_a_late_transaction_that_is_read_in_pieces_nothing_goes_that_is_left() {
    let fixture = Fixture::new().await;
    let late = fixture.database.client().await;
    late.batch_execute("BEGIN").await.unwrap();
    emit(&late, 6).await;
    emit(&fixture.plain, 1).await;
    assert_eq!(pass(&fixture, 10).await, [7]);
    late.batch_execute("COMMIT").await.unwrap();
    assert_eq!(pass(&fixture, 2).await, [1, 2]);
    assert_eq!(purge(&fixture).await, 1);
    assert_eq!(pass(&fixture, 2).await, [3, 4]);
    assert_eq!(purge(&fixture).await, 0);
    assert_eq!(pass(&fixture, 2).await, [5, 6]);
    assert_eq!(pass(&fixture, 2).await, [0; 0]);
    assert_eq!(purge(&fixture).await, 6);
}

#[tokio::test]
async fn no_event_goes_while_a_destination_is_being_opened() {
    let fixture = Fixture::new().await;
    emit(&fixture.plain, 3).await;
    assert_eq!(pass(&fixture, 10).await, [1, 2, 3]);
    let mut other = fixture.database.client().await;
    let opening = other.transaction().await.unwrap();
    let hold = include_str!("../../queries/delivery/hold_open.sql");
    opening.execute(hold, &[&"new"]).await.unwrap();
    assert_eq!(purge(&fixture).await, 0);
    let open = include_str!("../../queries/delivery/open.sql");
    let register = include_str!("../../queries/delivery/register.sql");
    let at = std::time::UNIX_EPOCH;
    for sql in [register, open] {
        opening.query(sql, &[&"new", &at]).await.unwrap();
    }
    opening.commit().await.unwrap();
    assert_eq!(
        purge(&fixture).await,
        0,
        "the new destination has passed nothing"
    );
}

#[tokio::test]
async fn opening_a_destination_waits_for_the_purge_that_is_under_way() {
    let fixture = Fixture::new().await;
    let mut other = fixture.database.client().await;
    let purging = other.transaction().await.unwrap();
    let hold = include_str!("../../queries/outbox/hold_purge.sql");
    purging.execute(hold, &[]).await.unwrap();
    let store = fixture.store.clone();
    let opening = tokio::spawn(async move { store.open("new").await });
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    hapax_testkit::wait::eventually(crate::fixture::PATIENCE, async || {
        fixture.count(waiting).await == 1
    })
    .await;
    purging.commit().await.unwrap();
    assert_eq!(opening.await.unwrap().unwrap().epoch, 1);
}

#[tokio::test]
async fn what_somebody_holds_is_left_for_the_next_purge() {
    let fixture = Fixture::new().await;
    emit(&fixture.plain, 3).await;
    assert_eq!(pass(&fixture, 10).await, [1, 2, 3]);
    let mut other = fixture.database.client().await;
    let holding = other.transaction().await.unwrap();
    let hold = "SELECT id FROM hapax.outbox_event WHERE id = 2 FOR UPDATE";
    holding.query(hold, &[]).await.unwrap();
    assert_eq!(purge(&fixture).await, 2);
    holding.rollback().await.unwrap();
    assert_eq!(purge(&fixture).await, 1);
}

#[tokio::test]
async fn the_longest_retention_keeps_everything() {
    let fixture = Fixture::new().await;
    emit(&fixture.plain, 3).await;
    assert_eq!(pass(&fixture, 10).await, [1, 2, 3]);
    for retention in [
        Duration::MAX,
        Duration::from_secs(u64::from(u32::MAX) * 10_000),
    ] {
        let purged = fixture.store.purge_events(retention, retention).await;
        assert_eq!(purged.unwrap(), 0);
    }
}

async fn emit(client: &Client, count: i32) {
    client.execute(EMIT, &[&count]).await.unwrap();
}

async fn purge(fixture: &Fixture) -> u64 {
    fixture
        .store
        .purge_events(DAY, Duration::MAX)
        .await
        .unwrap()
}

/// Lets the destination pass what it can read at once; says what that was.
async fn pass(fixture: &Fixture, limit: usize) -> Vec<i64> {
    let opened = fixture.store.open("hook").await.unwrap();
    let from: Frontier = opened.checkpoint.frontier;
    let batch = Outbox::read(&fixture.store, &from, limit).await.unwrap();
    let settlement = Settlement {
        destination: "hook".to_owned(),
        epoch: opened.epoch,
        checkpoint: Some(Checkpoint {
            frontier: batch.frontier,
            ..Checkpoint::default()
        }),
        ..Settlement::default()
    };
    fixture.store.settle(settlement).await.unwrap();
    let positions = batch.events.iter().map(|event| event.position);
    positions.collect()
}
