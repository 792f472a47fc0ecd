//! Reading on from a frontier that was read elsewhere.

use hapax::{
    delivery::{Frontier, Shards},
    store::{Deliveries, Source, StoreError},
};
use hapax_postgres::Postgres;
use hapax_testkit::proxy::Proxy;

use super::{Parted, at, positions, read, settlement};
use crate::fixture::settings;

#[tokio::test]
async fn a_frontier_of_a_history_that_was_lost_is_fenced_and_one_that_stands_goes_on() {
    for parted in [Parted::by_failover().await, Parted::by_restore().await] {
        let lost = parted.lost().await;
        let told = Source::read(&parted.new, &lost.frontier, Shards::ALL, 10).await;
        assert!(matches!(told, Err(StoreError::Fenced)), "{told:?}");
        let batch = read(&parted.new, &parted.stands.frontier).await;
        assert_eq!(positions(&batch), [2, 3, 4]);
        assert_eq!(read(&parted.new, &batch.frontier).await.events.len(), 0);
    }
}

/// The address leads to the old primary again, when only one connection is there to the new one.
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
    let told = Source::read(&store, &lost, Shards::ALL, 10).await;
    assert!(matches!(told, Err(StoreError::Fenced)), "{told:?}");
}

#[tokio::test]
async fn past_a_crowd_nothing_is_found_of_another_history_than_what_was_read_before_it() {
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
