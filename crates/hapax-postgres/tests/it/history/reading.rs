//! Reading from a frontier that was read on another server.

use hapax::{
    delivery::{Frontier, Shards},
    event::EventId,
    store::{Batch, Settlements, Source, StoreError},
};
use hapax_postgres::Postgres;
use hapax_testkit::{assert_matches, proxy::Proxy};

use super::{EMIT, Parted, at, positions, read, settlement};
use crate::fixture::settings;

#[tokio::test]
async fn a_frontier_of_a_history_that_was_lost_is_fenced_and_one_that_stands_goes_on() {
    for parted in [Parted::by_failover().await, Parted::by_restore().await] {
        let lost = parted.lost().await;
        let outcome = Source::read(&parted.new, &lost.frontier, Shards::ALL, 10).await;
        assert_matches!(outcome, Err(StoreError::SetBack { .. }));
        let batch = read(&parted.new, &parted.stands.frontier).await;
        assert_eq!(positions(&batch), [2, 3, 4]);
        assert_eq!(read(&parted.new, &batch.frontier).await.events.len(), 0);
    }
}

/// The address leads to the old primary again while only one connection to the new one exists.
#[tokio::test]
async fn what_stands_where_another_connection_leads_does_not_stand_here() {
    let parted = Parted::by_failover().await;
    let lost = parted.lost().await.frontier;
    let settled = parted.old.settle(settlement(parted.epoch, Some(at(&lost))));
    settled.await.unwrap();
    let [old, new] = &parted.servers;
    let proxy = Proxy::to_postgres(new.address());
    let store = Postgres::open(settings(&proxy.url(&new.url())))
        .await
        .unwrap();
    proxy.lead_to(old.address());
    let outcome = Source::read(&store, &lost, Shards::ALL, 10).await;
    assert_matches!(outcome, Err(StoreError::SetBack { .. }));
}

#[tokio::test]
async fn past_a_busy_tenant_nothing_is_found_of_another_history_than_what_was_read_before_it() {
    let parted = Parted::by_failover().await;
    let lost = parted.lost().await.frontier;
    let kept = read(&parted.new, &parted.stands.frontier).await.frontier;
    let past = async |store: &Postgres, head: &Frontier| {
        let past = Source::read_past(store, head, 2, Shards::ALL, &[], 10).await;
        past.unwrap().events.len()
    };
    assert_eq!(past(&parted.old, &lost).await, 2);
    assert_eq!(past(&parted.new, &kept).await, 2);
    assert_eq!(past(&parted.new, &lost).await, 0);
    assert_eq!(past(&parted.old, &kept).await, 0);
}

/// If the late events are so many that they are read in pieces, the remaining pieces are not read
/// from another history.
#[tokio::test]
async fn what_is_late_of_a_lost_history_is_not_looked_for_in_another() {
    let mut parted = Parted::by_failover().await;
    let late = parted.on_old.transaction().await.unwrap();
    for _ in 0..3 {
        late.batch_execute(EMIT).await.unwrap();
    }
    let beside = parted.servers[0].client().await;
    beside.batch_execute(EMIT).await.unwrap();
    let batch = read(&parted.old, &parted.stands.frontier).await;
    assert_eq!(positions(&batch), [5]);
    late.commit().await.unwrap();
    let piece = Source::read(&parted.old, &batch.frontier, Shards::ALL, 1).await;
    let piece = piece.unwrap();
    assert_eq!(positions(&piece), [2]);
    // The new server draws the xid of the late transaction as well; a search by xid alone would
    // find these events.
    let again = parted.on_new.transaction().await.unwrap();
    for _ in 0..4 {
        again.batch_execute(EMIT).await.unwrap();
    }
    again.commit().await.unwrap();
    let outcome = Source::read(&parted.new, &piece.frontier, Shards::ALL, 10).await;
    assert_matches!(outcome, Err(StoreError::SetBack { .. }));
    assert_eq!(positions(&read(&parted.old, &piece.frontier).await), [3, 4]);
}

#[tokio::test]
async fn after_a_fence_no_connection_is_used_that_leads_to_the_lost_history() {
    let parted = Parted::by_failover().await;
    parted.lost().await;
    let kept = read(&parted.new, &parted.stands.frontier).await;
    let [old, new] = &parted.servers;
    let proxy = Proxy::to_postgres(old.address());
    let store = Postgres::open(settings(&proxy.url(&old.url())))
        .await
        .unwrap();
    proxy.lead_to(new.address());
    let outcome = Source::read(&store, &kept.frontier, Shards::ALL, 10).await;
    assert_matches!(outcome, Err(StoreError::SetBack { .. }));
    let batch = read(&store, &parted.stands.frontier).await;
    let ids = |batch: &Batch| -> Vec<EventId> {
        batch.events.iter().map(|event| event.event.id).collect()
    };
    assert_eq!(ids(&batch), ids(&kept));
}
