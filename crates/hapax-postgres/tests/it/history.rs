//! A standby that takes over had not heard of everything: what was read of the lost history is read
//! anew from the checkpoint, and what stands in the new one goes on.

use hapax::{
    delivery::{Checkpoint, Frontier, Settlement, Shards},
    store::{Deliveries, Source, StoreError},
};
use hapax_postgres::Postgres;
use hapax_testkit::{postgres::Cluster, wait::eventually};

use crate::fixture::{PATIENCE, settings};

const EMIT: &str = "
    INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
    VALUES (gen_random_uuid(), 'a', '{}', '{}', now())";

#[tokio::test]
async fn a_frontier_of_a_history_that_was_lost_is_fenced_and_one_that_stands_goes_on() {
    let primary = Cluster::start().await;
    let old = Postgres::open(settings(&primary.url())).await.unwrap();
    let standby = primary.standby().await;
    let client = primary.client().await;
    client.batch_execute(EMIT).await.unwrap();
    let stands = pass(&old).await;
    let there = standby.client().await;
    eventually(PATIENCE, async || {
        let told = "SELECT count(*) FROM hapax.position WHERE frontier = 1";
        there.query_one(told, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    standby.promote().await;
    // The old primary goes on for a while, and the new one gives the same ids and xids again.
    for _ in 0..3 {
        client.batch_execute(EMIT).await.unwrap();
    }
    let lost = Source::read(&old, &stands, Shards::ALL, 10).await.unwrap();
    assert_eq!(lost.events.len(), 3);
    for _ in 0..3 {
        there.batch_execute(EMIT).await.unwrap();
    }
    let new = Postgres::open(settings(&standby.url())).await.unwrap();
    let told = Source::read(&new, &lost.frontier, Shards::ALL, 10).await;
    assert!(matches!(told, Err(StoreError::Fenced)), "{told:?}");
    let read = Source::read(&new, &stands, Shards::ALL, 10).await.unwrap();
    assert_eq!(read.events.len(), 3);
    let read = Source::read(&new, &read.frontier, Shards::ALL, 10).await;
    assert_eq!(read.unwrap().events.len(), 0);
}

/// Reads what there is, and writes the checkpoint behind it.
async fn pass(store: &Postgres) -> Frontier {
    let opened = store.open("hook").await.unwrap();
    let from = &opened.checkpoint.frontier;
    let batch = Source::read(store, from, Shards::ALL, 10).await.unwrap();
    assert_eq!(batch.events.len(), 1);
    let settlement = Settlement {
        destination: "hook".to_owned(),
        epoch: opened.epoch,
        checkpoint: Some(Checkpoint {
            frontier: batch.frontier.clone(),
            ..Checkpoint::default()
        }),
        ..Settlement::default()
    };
    store.settle(settlement).await.unwrap();
    batch.frontier
}
