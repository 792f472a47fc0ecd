//! The current status of every partition: its declaration, its owner and its backlog.
//!
//! Counts are bounded, so that the cost does not grow with the backlog.

use hapax::{
    admin::{Actor, NextRetry, PartitionStatus},
    limits::NODE_LEASE,
    store::StoreError,
};
use tokio_postgres::Row;

use super::declared::moment;
use crate::{
    outbox::age,
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// All partitions that an actor may see, by name.
pub(super) async fn partitions(
    store: &Postgres,
    actor: &Actor,
) -> Result<Vec<PartitionStatus>, StoreError> {
    let (lease, time, tenant) = (age(NODE_LEASE), store.time(), actor.tenant());
    let (events, deliveries) = (PartitionStatus::EVENTS, PartitionStatus::DELIVERIES);
    let params: [&dyn Param; 5] = [&events, &lease, &time, &tenant, &deliveries];
    let found = store.ask(query!("admin/partitions_now"), &params).await?;
    Ok(found.iter().map(partition).collect())
}

fn partition(row: &Row) -> PartitionStatus {
    let count = |column| row.get::<_, i64>(column).unsigned_abs();
    let reason: Option<String> = row.get("disabled_reason");
    let spec: Option<&str> = row.get("spec");
    let spec = spec.and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    PartitionStatus {
        name: row.get("name"),
        disabled: moment(row, "disabled_at").map(|at| (at, reason.unwrap_or_default())),
        paused_at: moment(row, "paused_at"),
        paused_by: row.get("paused_by"),
        is_set_paused: spec.is_some_and(|spec| spec["paused"] == true),
        node: row.get("node"),
        lives: row.get("lives"),
        seen_at: moment(row, "seen_at"),
        any_lives: row.get("any_lives"),
        written_at: row.get::<_, Moment>("written_at").0,
        looked: row.get("looked"),
        unread: count("unread"),
        oldest_unread: moment(row, "oldest_unread"),
        parked: count("parked"),
        oldest_parked: moment(row, "oldest_parked"),
        dead: count("dead"),
        next: next(row),
        at: row.get::<_, Moment>("at").0,
        about: count("about"),
    }
}

fn next(row: &Row) -> Option<NextRetry> {
    Some(NextRetry {
        position: row.get::<_, Option<i64>>("position")?,
        attempts: row.get::<_, Option<i32>>("attempt")?.unsigned_abs(),
        due_at: moment(row, "next_at")?,
        error: row.get("last_error"),
        changed_at: moment(row, "changed_at")?,
    })
}
