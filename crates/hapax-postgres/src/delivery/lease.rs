//! Owners of partitions and live nodes: one row for each partition that changes its owner, and a
//! log of heartbeats.
//!
//! The database's clock decides for every node, so the clocks of two machines are never compared. A
//! heartbeat appends a row; no row is updated every second.

use std::time::Duration;

use hapax::{
    delivery::{Membership, OwnedPartition},
    store::StoreError,
};

use crate::{
    postgres::Postgres,
    query,
    value::{Moment, Param, millis},
};

use super::sweep;

/// Appends a heartbeat, and returns the live nodes and the partitions that each owns.
pub(super) async fn heartbeat(
    store: &Postgres,
    node: &str,
    knows: &[String],
    lease: Duration,
) -> Result<Membership, StoreError> {
    let params: [&dyn Param; 4] = [&node, &millis(lease), &store.time(), &knows];
    let asked_at = store.clock().now();
    let rows = store.ask(query!("delivery/heartbeat"), &params).await?;
    if let Some(row) = rows.first() {
        store.observe_time(asked_at, row.get::<_, Moment>("at").0);
    }
    let mut membership = Membership::default();
    for row in &rows {
        let node: String = row.get(0);
        if let Some(partition) = row.get(1) {
            membership.held.push(OwnedPartition {
                partition,
                node: node.clone(),
                epoch: row.get("epoch"),
            });
        }
        if membership.nodes.last() != Some(&node) {
            if let Some(knows) = row.get::<_, Option<Vec<String>>>("destinations") {
                membership
                    .knows
                    .insert(node.clone(), knows.into_iter().collect());
            }
            membership.nodes.push(node);
        }
    }
    if let Some(row) = rows.first() {
        membership.operators = Some(row.get("operators"));
        sweep::signs(store, row.get("number")).await;
    }
    Ok(membership)
}

/// Releases a partition if `epoch` is still its epoch.
pub(super) async fn give_up(
    store: &Postgres,
    partition: &str,
    epoch: i64,
) -> Result<(), StoreError> {
    let params: [&dyn Param; 2] = [&partition, &epoch];
    let given_up = store.ask(query!("delivery/give_up"), &params).await?;
    if given_up.is_empty() {
        return Err(StoreError::Fenced);
    }
    Ok(())
}

/// Lets everything go that a node holds, and forgets the node.
pub(super) async fn leave(store: &Postgres, node: &str) -> Result<(), StoreError> {
    let params: [&dyn Param; 2] = [&node, &store.time()];
    store.ask(query!("delivery/leave"), &params).await.map(drop)
}
