//! The current status of every partition: its declaration, its owner and its backlog.
//!
//! Counts are bounded, so that the cost does not grow with the backlog.

use hapax::{Timestamp, admin::Actor, limits::NODE_LEASE, store::StoreError};
use tokio_postgres::Row;

use super::declared::moment;
use crate::{
    outbox::age,
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// Events beyond a frontier that are read.
pub(super) const EVENTS: i64 = 1_000;
/// Deliveries that are counted.
pub(super) const DELIVERIES: i64 = 2_000;

/// The status of one partition.
#[derive(Clone, Debug)]
pub(super) struct PartitionNow {
    pub(super) name: String,
    pub(super) disabled: Option<(Timestamp, String)>,
    pub(super) paused_at: Option<Timestamp>,
    pub(super) paused_by: Option<String>,
    /// Whether the specification of its destination pauses it.
    pub(super) is_set_paused: bool,
    /// The node that owns it, whether this node is alive, and the time of its last heartbeat.
    pub(super) node: Option<String>,
    pub(super) lives: bool,
    pub(super) seen_at: Option<Timestamp>,
    /// Whether any node is alive.
    pub(super) any_lives: bool,
    /// When its checkpoint was written.
    pub(super) written_at: Timestamp,
    /// Unsettled events among those that were read, and the number of events that were read.
    pub(super) unread: u64,
    pub(super) looked: i64,
    /// The estimated number of unsettled events.
    pub(super) about: u64,
    pub(super) oldest_unread: Option<Timestamp>,
    pub(super) parked: u64,
    pub(super) oldest_parked: Option<Timestamp>,
    pub(super) dead: u64,
    /// The delivery that is retried next.
    pub(super) next: Option<Next>,
    pub(super) at: Timestamp,
}

/// A delivery that is waiting for a retry.
#[derive(Clone, Debug)]
pub(super) struct Next {
    pub(super) position: i64,
    pub(super) attempts: u32,
    pub(super) due_at: Timestamp,
    pub(super) error: Option<String>,
    pub(super) changed_at: Timestamp,
}

/// All partitions that an actor may see, by name.
pub(super) async fn partitions(
    store: &Postgres,
    actor: &Actor,
) -> Result<Vec<PartitionNow>, StoreError> {
    let (lease, time, tenant) = (age(NODE_LEASE), store.time(), actor.tenant());
    let params: [&dyn Param; 5] = [&EVENTS, &lease, &time, &tenant, &DELIVERIES];
    let found = store.ask(query!("admin/partitions_now"), &params).await?;
    Ok(found.iter().map(partition).collect())
}

fn partition(row: &Row) -> PartitionNow {
    let count = |column| row.get::<_, i64>(column).unsigned_abs();
    let reason: Option<String> = row.get("disabled_reason");
    let spec: Option<&str> = row.get("spec");
    let spec = spec.and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    PartitionNow {
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

fn next(row: &Row) -> Option<Next> {
    Some(Next {
        position: row.get::<_, Option<i64>>("position")?,
        attempts: row.get::<_, Option<i32>>("attempt")?.unsigned_abs(),
        due_at: moment(row, "next_at")?,
        error: row.get("last_error"),
        changed_at: moment(row, "changed_at")?,
    })
}
