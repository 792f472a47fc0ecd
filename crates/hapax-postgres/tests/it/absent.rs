//! Partitions that do not read: a partition without an owner, one whose destination is declared,
//! one that has never read, and one with a slow owner.

use std::{num::NonZeroU8, time::Duration};

use hapax::{
    delivery::{Attempt, AttemptOutcome, Checkpoint, Settlement, Shards},
    store::{DeadLetters, Partitions, Settlements, Source},
};

use crate::{
    fixture::Fixture,
    retention::{AGE, LEFT, emit, purge, purge_once},
};

const NODE: &str = "node";
const LEASE: Duration = Duration::from_secs(5);
const PARKED: &str = "SELECT count(*) FROM hapax.delivery WHERE destination LIKE 'left%'";
const DECLARE: &str = "
    INSERT INTO hapax.declaration (name, version, created_at, changed_at, changed_by)
    VALUES ('left', 1, now(), now(), 'somebody')";
const DISABLE: &str = "UPDATE hapax.destination SET disabled_at = now() WHERE name = 'left'";

/// A store with a live relay that owns "hook", and with the partition "left", which was opened and
/// never read.
async fn left(partition: &str) -> Fixture {
    let fixture = Fixture::new().await;
    fixture.store.heartbeat(NODE, &[], LEASE).await.unwrap();
    let taken = fixture.store.take("hook", NODE, LEASE).await.unwrap();
    assert!(taken.is_some());
    fixture.store.open(partition).await.unwrap();
    fixture
}

/// Reads and settles every event for "hook".
async fn carry(fixture: &Fixture) {
    loop {
        let opened = fixture.store.take("hook", NODE, LEASE).await.unwrap();
        let opened = opened.unwrap();
        let from = opened.checkpoint.frontier;
        let batch = Source::read(&fixture.store, &from, Shards::ALL, 10_000);
        let batch = batch.await.unwrap();
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
        if batch.events.is_empty() {
            return;
        }
    }
}

/// Emits, reads and purges until all eight segments have been used at least once; returns the
/// number of the current rotation.
async fn go_round(fixture: &Fixture) -> i64 {
    for _ in 0..9 {
        emit(&fixture.plain, 4).await;
        carry(fixture).await;
        while purge(fixture).await > 0 {}
    }
    fixture
        .count("SELECT last_value >> 36 FROM hapax.outbox_event_id")
        .await
}

#[tokio::test]
async fn a_partition_without_a_relay_neither_holds_up_the_rotation_nor_gets_parked_events() {
    let fixture = left("left/3").await;
    assert_eq!(go_round(&fixture).await, 9);
    assert_eq!(
        fixture.count(LEFT).await,
        0,
        "the abandoned partition holds events back"
    );
    assert_eq!(fixture.count(PARKED).await, 0);
    // A partition that returns starts at the events that exist now, and holds them back again.
    let opened = fixture.store.open("left/3").await.unwrap();
    emit(&fixture.plain, 2).await;
    carry(&fixture).await;
    assert_eq!(purge_once(&fixture).await, 0);
    let from = opened.checkpoint.frontier;
    let batch = Source::read(&fixture.store, &from, Shards::ALL, 10).await;
    assert_eq!(batch.unwrap().events.len(), 2);
    fixture
        .run("UPDATE hapax.rotation SET opened_at = opened_at - interval '9 days'")
        .await;
    purge_once(&fixture).await;
    fixture
        .run("UPDATE hapax.rotation SET closed_at = closed_at - interval '9 days'")
        .await;
    assert_eq!(purge_once(&fixture).await, 0);
    assert_eq!(fixture.count(LEFT).await, 2);
}

#[tokio::test]
async fn a_partition_whose_destination_is_declared_or_disabled_gets_parked_events_without_a_relay()
{
    for kept in [DECLARE, DISABLE] {
        let fixture = left("left").await;
        fixture.run(kept).await;
        assert!(go_round(&fixture).await >= 9, "the outbox does not rotate");
        let lost = "SELECT count(*)
            FROM generate_series(0, 8) AS turn, generate_series(1, 4) AS number
            WHERE NOT EXISTS (SELECT FROM hapax.outbox_event WHERE id = (turn << 36) + number)";
        let events = format!("{} ", lost.replace("turn << 36", "turn::bigint << 36"));
        assert_eq!(fixture.count(&events).await, 0, "{kept}");
        assert!(fixture.count(PARKED).await >= 4);
    }
}

/// If a destination is paused by its own setting, a relay knows it but does not own it.
#[tokio::test]
async fn a_partition_that_a_node_knows_is_kept_without_an_owner() {
    let fixture = left("left").await;
    let knows = ["left".to_owned()];
    let signed = fixture.store.heartbeat("pausing", &knows, LEASE).await;
    signed.unwrap();
    emit(&fixture.plain, 4).await;
    carry(&fixture).await;
    for _ in 0..3 {
        assert_eq!(purge(&fixture).await, 0);
    }
    assert_eq!(fixture.count(LEFT).await, 4);
    let unheard =
        "UPDATE hapax.heartbeat SET seen_at = seen_at - interval '2 days' WHERE node = 'pausing'";
    fixture.run(unheard).await;
    // The absence counts from this moment, however long the destination was paused before.
    assert_eq!(purge_once(&fixture).await, 0);
    purge(&fixture).await;
    assert_eq!(
        fixture.count(LEFT).await,
        0,
        "the absent partition holds events back"
    );
}

/// While the relay is down and services purge, no partition counts as abandoned.
#[tokio::test]
async fn if_no_partition_is_owned_none_counts_as_abandoned() {
    let fixture = left("left").await;
    emit(&fixture.plain, 4).await;
    carry(&fixture).await;
    fixture.store.leave(NODE).await.unwrap();
    for _ in 0..3 {
        assert_eq!(purge(&fixture).await, 0);
    }
    // The relay has restarted and has not opened the other partition yet.
    fixture.store.heartbeat(NODE, &[], LEASE).await.unwrap();
    let taken = fixture.store.take("hook", NODE, LEASE).await.unwrap();
    assert!(taken.is_some());
    assert_eq!(purge_once(&fixture).await, 0);
    assert_eq!(fixture.count(LEFT).await, 4);
}

/// If no purge has checked an absence for a day, the absence does not count: a relay may have owned
/// the partition in between.
#[tokio::test]
async fn an_absence_counts_only_as_far_as_it_was_looked_at() {
    let fixture = left("left").await;
    emit(&fixture.plain, 4).await;
    carry(&fixture).await;
    purge_once(&fixture).await;
    fixture.run(AGE).await;
    fixture
        .run("UPDATE hapax.absence SET noted_at = noted_at - interval '2 days'")
        .await;
    purge_once(&fixture).await;
    fixture
        .run("UPDATE hapax.rotation SET closed_at = closed_at - interval '9 days'")
        .await;
    assert_eq!(purge_once(&fixture).await, 0);
    assert_eq!(fixture.count(LEFT).await, 4);
}

/// If a partition that has never read lags, only the events of its shards are parked. The division
/// of the shards is taken from its siblings.
#[tokio::test]
async fn a_partition_that_has_never_read_gets_its_own_events_parked() {
    let fixture = left("left/1").await;
    fixture.run(DECLARE).await;
    let opened = fixture.store.open("left/0").await.unwrap();
    let shards = Shards::of_partition(0, NonZeroU8::new(4).unwrap()).unwrap();
    let batch = Source::read(&fixture.store, &opened.checkpoint.frontier, shards, 10);
    let settlement = Settlement {
        destination: "left/0".to_owned(),
        epoch: opened.epoch,
        checkpoint: Some(Checkpoint {
            frontier: batch.await.unwrap().frontier,
            ..Checkpoint::default()
        }),
        ..Settlement::default()
    };
    fixture.store.settle(settlement).await.unwrap();
    let each = "
        INSERT INTO hapax.outbox_event (shard, event_id, type, payload, headers, created_at)
        SELECT shard, gen_random_uuid(), 'a', '{}', '{}', now()
        FROM generate_series(0, 15) AS shard";
    fixture.run(each).await;
    go_round(&fixture).await;
    let parked = "SELECT count(*) FROM hapax.delivery AS delivery
        JOIN hapax.outbox_event AS event ON event.id = delivery.position
        WHERE delivery.position <= 16 AND event.shard % 4 = split_part(destination, '/', 2)::int";
    assert_eq!(fixture.count(parked).await, 8);
    let all = "SELECT count(*) FROM hapax.delivery WHERE position <= 16";
    assert_eq!(fixture.count(all).await, 8);
}

/// A slow owner is fenced once, however many events it lags. The events that it had offered without
/// a result count as interrupted attempts.
#[tokio::test]
async fn a_slow_owner_is_fenced_once_and_what_it_had_on_the_wire_is_counted() {
    let fixture = left("left").await;
    fixture.run(DECLARE).await;
    emit(&fixture.plain, 12_000).await;
    let opened = fixture.store.open("left").await.unwrap();
    let wire = Settlement {
        destination: "left".to_owned(),
        epoch: opened.epoch,
        checkpoint: Some(Checkpoint {
            offered: [3, 5].into(),
            ..Checkpoint::default()
        }),
        ..Settlement::default()
    };
    fixture.store.settle(wire).await.unwrap();
    for _ in 0..8 {
        carry(&fixture).await;
        purge(&fixture).await;
        emit(&fixture.plain, 1).await;
    }
    while purge(&fixture).await > 0 {
        carry(&fixture).await;
    }
    assert_eq!(fixture.count(PARKED).await, 12_000);
    let epoch = "SELECT epoch FROM hapax.lease WHERE partition = 'left'";
    assert_eq!(fixture.count(epoch).await, opened.epoch + 1);
    let due = fixture.store.due("left", &[], 10, 0).await.unwrap();
    let counted: Vec<_> = due
        .iter()
        .map(|it| (it.event.position, it.attempt))
        .collect();
    assert_eq!(counted, [(1, 0), (2, 0), (3, 1), (5, 1)]);
    let log = fixture.store.attempts("left", 3).await.unwrap();
    let outcomes: Vec<_> = log.iter().map(|Attempt { outcome, .. }| *outcome).collect();
    assert_eq!(outcomes, [AttemptOutcome::Interrupted]);
    fixture.run(AGE).await;
}
