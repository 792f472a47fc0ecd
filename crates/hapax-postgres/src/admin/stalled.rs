//! List of what is stalled, with one reason for each item.
//!
//! The reasons are those that the database knows. Whether a breaker is open is known only to the
//! relay that owns the partition, whose metrics show it.

use std::{fmt, time::Duration};

use hapax::Timestamp;
use tokio_postgres::Row;

use super::{
    Actor, AdminError,
    declared::moment,
    destination_of,
    partitions::{self, PartitionNow},
};
use crate::{
    outbox::age,
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// An item that makes no progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// The item.
    pub what: What,
    /// The reason.
    pub cause: Cause,
    /// When it started, if that is recorded.
    pub since: Option<Timestamp>,
    /// The approximate number of waiting events, deliveries or sagas, counted up to a bound.
    pub waiting: u64,
}

/// The item that is stalled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A partition of a destination.
    Partition(String),
    /// One order key at a partition of a destination. Other keys make progress.
    OrderKey {
        /// The partition.
        partition: String,
        /// The type of the aggregate.
        aggregate_type: String,
        /// The id of the aggregate.
        aggregate_id: String,
    },
    /// Events of one type at a partition of a destination. Events of other types make progress.
    EventType {
        /// The partition.
        partition: String,
        /// The type.
        kind: String,
    },
    /// Sagas of one kind.
    Sagas {
        /// The name of their definition.
        name: String,
        /// Its version.
        version: u32,
    },
    /// The outbox as a whole.
    Outbox,
}

/// The reason why an item is stalled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The destination is paused.
    Paused {
        /// The operator who paused it; `None` if its specification does.
        by: Option<String>,
    },
    /// The destination is disabled, for example because its receiver responded 410 (Gone).
    Disabled {
        /// The reason.
        reason: String,
    },
    /// No relay is alive, or no live relay knows the destination.
    Unowned {
        /// The last owner.
        last: Option<String>,
    },
    /// The relay that owns the partition has stopped sending heartbeats.
    OwnerSilent {
        /// The node name of the relay.
        node: String,
        /// The time of its last heartbeat.
        seen_at: Option<Timestamp>,
    },
    /// A delivery waits for its next attempt, or until the time that the receiver asked for.
    WaitsForRetry {
        /// The position of the event that is tried next.
        position: i64,
        /// The number of attempts made.
        attempts: u32,
        /// The time of the next attempt.
        next_at: Timestamp,
        /// The error of the last attempt.
        error: Option<String>,
    },
    /// A live relay owns the partition and settles nothing: its breaker is open, or the receiver is
    /// slow. Its metrics show which.
    NotSettling,
    /// A dead letter blocks the later events of its order key.
    BehindDeadLetter {
        /// The position of its event.
        position: i64,
        /// Its last error.
        error: Option<String>,
    },
    /// The receiver accepts other events and declines these: no queue or stream is bound for them,
    /// or it refuses their content. They are retried on the destination's schedule and then become
    /// dead letters.
    Declined {
        /// The position of the first one.
        position: i64,
        /// The error of one of them.
        error: Option<String>,
    },
    /// These sagas need a person's decision.
    NeedsAttention,
    /// These sagas are due, and no worker takes them: no running worker knows their version.
    NobodyKnows,
    /// A transaction has written rows and is still open. Its events are not visible yet, and the
    /// outbox cannot be purged beyond them. Events of other transactions are delivered.
    HeldBack {
        /// The session of the transaction, or the name under which it was prepared.
        holder: String,
    },
}

/// How long an item may make no progress before it is reported. A live relay needs less.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Lists what is stalled and why, the most severe first.
///
/// The database does not know whether a configuration file pauses a destination; the caller has to
/// add that. An actor of a tenant sees its own destinations and sagas.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn stalled(store: &Postgres, actor: &Actor) -> Result<Vec<Stalled>, AdminError> {
    let partitions = partitions::partitions(store, actor).await?;
    of_partitions(store, actor, &partitions).await
}

pub(super) async fn of_partitions(
    store: &Postgres,
    actor: &Actor,
    partitions: &[PartitionNow],
) -> Result<Vec<Stalled>, AdminError> {
    let outcome: Vec<(&PartitionNow, Option<Stalled>)> = partitions
        .iter()
        .map(|it| (it, stalled_partition(it)))
        .collect();
    // If the whole partition is stalled, its order keys are stalled for the same reason.
    let moving = outcome
        .iter()
        .filter(|(_, outcome)| outcome.as_ref().is_none_or(|it| it.cause.is_passing()));
    let moving: Vec<String> = moving
        .map(|(partition, _)| partition.name.clone())
        .collect();
    let mut all: Vec<Stalled> = outcome
        .into_iter()
        .filter_map(|(_, outcome)| outcome)
        .collect();
    all.extend(order_keys(store, &moving).await?);
    all.extend(event_types(store, &moving).await?);
    all.extend(of_sagas(store, actor).await?);
    if actor.tenant.is_none() {
        all.extend(writers(store).await?);
    }
    all.sort_by_key(|it| it.cause.rank());
    Ok(all)
}

impl What {
    /// The destination to which it belongs.
    pub fn destination(&self) -> Option<&str> {
        match self {
            Self::Partition(partition)
            | Self::OrderKey { partition, .. }
            | Self::EventType { partition, .. } => Some(destination_of(partition)),
            Self::Sagas { .. } | Self::Outbox => None,
        }
    }
}

impl Cause {
    /// The name in responses.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Paused { .. } => "paused",
            Self::Disabled { .. } => "disabled",
            Self::Unowned { .. } => "unowned",
            Self::OwnerSilent { .. } => "owner_silent",
            Self::WaitsForRetry { .. } => "waits_for_retry",
            Self::NotSettling => "not_settling",
            Self::BehindDeadLetter { .. } => "behind_dead_letter",
            Self::Declined { .. } => "declined",
            Self::NeedsAttention => "needs_attention",
            Self::NobodyKnows => "nobody_knows",
            Self::HeldBack { .. } => "held_back",
        }
    }

    /// The order of the list: first what never continues by itself, then what continues when an
    /// operator or a process acts, then what is intended, and last what continues by itself.
    const fn rank(&self) -> u8 {
        match self {
            Self::Disabled { .. } => 0,
            Self::Unowned { .. } => 1,
            Self::OwnerSilent { .. } => 2,
            Self::NeedsAttention => 3,
            Self::NobodyKnows => 4,
            Self::BehindDeadLetter { .. } => 5,
            Self::Declined { .. } => 6,
            Self::NotSettling => 7,
            Self::HeldBack { .. } => 8,
            Self::Paused { .. } => 9,
            Self::WaitsForRetry { .. } => 10,
        }
    }

    /// Whether other deliveries of the partition may still make progress.
    const fn is_passing(&self) -> bool {
        matches!(self, Self::WaitsForRetry { .. } | Self::NotSettling)
    }
}

impl fmt::Display for Cause {
    /// A clause for people, without times.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |error: &Option<String>| {
            let error = error.as_deref().filter(|error| !error.is_empty());
            error.map(|error| format!(": {error}")).unwrap_or_default()
        };
        match self {
            Self::Paused { by: Some(by) } => write!(f, "paused by {by}"),
            Self::Paused { by: None } => write!(f, "paused by its own setting"),
            Self::Disabled { reason } => write!(f, "disabled: {reason}"),
            Self::Unowned { last: Some(last) } => {
                write!(f, "no relay owns it; the last owner was {last}")
            }
            Self::Unowned { last: None } => write!(f, "no relay owns it"),
            Self::OwnerSilent { node, .. } => {
                write!(f, "owned by {node}, which sends no heartbeats")
            }
            Self::WaitsForRetry {
                position,
                attempts,
                error,
                ..
            } => {
                let error = said(error);
                write!(
                    f,
                    "event {position} waits for attempt {}{error}",
                    attempts + 1
                )
            }
            Self::NotSettling => write!(
                f,
                "its relay is alive but settles nothing: a breaker is open, or the receiver is slow"
            ),
            Self::BehindDeadLetter { position, error } => {
                write!(f, "blocked by dead letter {position}{}", said(error))
            }
            Self::Declined { error, .. } => {
                write!(f, "the receiver declines them{}", said(error))
            }
            Self::NeedsAttention => write!(f, "they need a person's decision"),
            Self::NobodyKnows => write!(f, "due, but no running worker knows their version"),
            Self::HeldBack { holder } => {
                write!(f, "{holder} has written rows and has not committed")
            }
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition(partition) => write!(f, "destination {partition}"),
            Self::OrderKey {
                partition,
                aggregate_type,
                aggregate_id,
            } => write!(f, "{aggregate_type} {aggregate_id} at {partition}"),
            Self::EventType { partition, kind } => write!(f, "events {kind} at {partition}"),
            Self::Sagas { name, version } => write!(f, "sagas {name} version {version}"),
            Self::Outbox => write!(f, "the outbox"),
        }
    }
}

/// Maximum number of order keys in the list.
const KEYS: i64 = 50;
/// Maximum number of event types in the list.
const TYPES: i64 = 20;
/// Deliveries of each kind that are checked for what they block, and maximum number of blocked
/// deliveries that are counted per key.
const HEADS: i64 = 100;
/// Maximum number of sagas of one kind that are counted.
const SAGAS: i64 = 1_000;

fn stalled_partition(partition: &PartitionNow) -> Option<Stalled> {
    let waiting = partition
        .unread
        .max(if partition.looked < partitions::EVENTS {
            0
        } else {
            partition.about
        })
        + partition.parked;
    let stalled = |cause, since| {
        Some(Stalled {
            what: What::Partition(partition.name.clone()),
            cause,
            since,
            waiting,
        })
    };
    if let Some((at, reason)) = &partition.disabled {
        let reason = reason.clone();
        return stalled(Cause::Disabled { reason }, Some(*at));
    }
    if partition.paused_at.is_some() || partition.is_set_paused {
        let by = partition
            .paused_by
            .clone()
            .filter(|_| partition.paused_at.is_some());
        return stalled(Cause::Paused { by }, partition.paused_at);
    }
    if waiting == 0 {
        return None;
    }
    match &partition.node {
        Some(node) if !partition.lives && partition.any_lives => {
            let (node, seen_at) = (node.clone(), partition.seen_at);
            return stalled(Cause::OwnerSilent { node, seen_at }, seen_at);
        }
        last if !partition.lives => {
            let last = last.clone();
            return stalled(Cause::Unowned { last }, partition.seen_at);
        }
        _ => {}
    }
    let is_old = |at: Timestamp| partition.at.since(at) > PATIENCE;
    match &partition.next {
        Some(next) if next.due_at > partition.at => {
            let cause = Cause::WaitsForRetry {
                position: next.position,
                attempts: next.attempts,
                next_at: next.due_at,
                error: next.error.clone(),
            };
            stalled(cause, Some(next.changed_at))
        }
        Some(next) if is_old(next.due_at) => stalled(Cause::NotSettling, Some(next.due_at)),
        _ if partition.oldest_unread.is_some_and(is_old) && is_old(partition.written_at) => {
            stalled(Cause::NotSettling, Some(partition.written_at))
        }
        _ => None,
    }
}

async fn order_keys(store: &Postgres, partitions: &[String]) -> Result<Vec<Stalled>, AdminError> {
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    let partitions = partitions.to_vec();
    let params: [&dyn Param; 3] = [&partitions, &HEADS, &KEYS];
    let found = store.ask(query!("admin/held_up"), &params).await?;
    Ok(found.iter().map(held_up).collect())
}

fn held_up(row: &Row) -> Stalled {
    let key: &str = row.get("order_key");
    let (kind, id) = key.split_once('\n').unwrap_or(("", key));
    let (position, error) = (row.get("position"), row.get("last_error"));
    let cause = if row.get::<_, &str>("state") == "dead" {
        Cause::BehindDeadLetter { position, error }
    } else {
        Cause::WaitsForRetry {
            position,
            attempts: row.get::<_, i32>("attempt").unsigned_abs(),
            next_at: row.get::<_, Moment>("next_at").0,
            error,
        }
    };
    Stalled {
        what: What::OrderKey {
            partition: row.get("destination"),
            aggregate_type: kind.to_owned(),
            aggregate_id: id.to_owned(),
        },
        cause,
        since: Some(row.get::<_, Moment>("changed_at").0),
        waiting: row.get::<_, i64>("number").unsigned_abs(),
    }
}

async fn event_types(store: &Postgres, partitions: &[String]) -> Result<Vec<Stalled>, AdminError> {
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    let partitions = partitions.to_vec();
    let params: [&dyn Param; 3] = [&partitions, &HEADS, &TYPES];
    let found = store.ask(query!("admin/declined"), &params).await?;
    let declined = |row: &Row| Stalled {
        what: What::EventType {
            partition: row.get("destination"),
            kind: row.get("type"),
        },
        cause: Cause::Declined {
            position: row.get("position"),
            error: row.get("error"),
        },
        since: Some(row.get::<_, Moment>("since").0),
        waiting: row.get::<_, i64>("number").unsigned_abs(),
    };
    Ok(found.iter().map(declined).collect())
}

async fn of_sagas(store: &Postgres, actor: &Actor) -> Result<Vec<Stalled>, AdminError> {
    let (patience, tenant, time) = (age(PATIENCE), actor.tenant(), store.time());
    let params: [&dyn Param; 4] = [&patience, &SAGAS, &tenant, &time];
    let found = store.ask(query!("admin/sagas_waiting"), &params).await?;
    let kind = |row: &Row| Stalled {
        what: What::Sagas {
            name: row.get("name"),
            version: u32::try_from(row.get::<_, i64>("version")).unwrap_or(0),
        },
        cause: if row.get("is_asking") {
            Cause::NeedsAttention
        } else {
            Cause::NobodyKnows
        },
        since: moment(row, "since"),
        waiting: row.get::<_, i64>("number").unsigned_abs(),
    };
    Ok(found.iter().map(kind).collect())
}

async fn writers(store: &Postgres) -> Result<Vec<Stalled>, AdminError> {
    let found = store
        .ask(query!("admin/open_writers"), &[&age(PATIENCE)])
        .await?;
    let writer = |row: &Row| Stalled {
        what: What::Outbox,
        cause: Cause::HeldBack {
            holder: row.get("holder"),
        },
        since: moment(row, "since"),
        waiting: 0,
    };
    Ok(found.iter().map(writer).collect())
}
