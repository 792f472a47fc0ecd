//! List of what is stalled, with one reason for each item.

use std::time::Duration;

use hapax::{
    Timestamp,
    admin::{Actor, AdminError, Cause, Stalled, StalledItem},
};
use tokio_postgres::Row;

use super::{
    declared::moment,
    partitions::{self, PartitionNow},
};
use crate::{
    outbox::age,
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// How long an item may make no progress before it is reported. A live relay needs less.
const PATIENCE: Duration = Duration::from_mins(1);

/// What is stalled and why, the most severe first.
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
        let partition = partition.name.clone();
        let what = StalledItem::Partition { partition };
        Some(Stalled::new(what, cause, since, waiting))
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
    let what = StalledItem::OrderKey {
        partition: row.get("destination"),
        aggregate_type: kind.to_owned(),
        aggregate_id: id.to_owned(),
    };
    Stalled::new(what, cause, moment(row, "changed_at"), number(row))
}

fn number(row: &Row) -> u64 {
    row.get::<_, i64>("number").unsigned_abs()
}

async fn event_types(store: &Postgres, partitions: &[String]) -> Result<Vec<Stalled>, AdminError> {
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    let partitions = partitions.to_vec();
    let params: [&dyn Param; 3] = [&partitions, &HEADS, &TYPES];
    let found = store.ask(query!("admin/declined"), &params).await?;
    let declined = |row: &Row| {
        let what = StalledItem::EventType {
            partition: row.get("destination"),
            kind: row.get("type"),
        };
        let cause = Cause::Declined {
            position: row.get("position"),
            error: row.get("error"),
        };
        Stalled::new(what, cause, moment(row, "since"), number(row))
    };
    Ok(found.iter().map(declined).collect())
}

async fn of_sagas(store: &Postgres, actor: &Actor) -> Result<Vec<Stalled>, AdminError> {
    let (patience, tenant, time) = (age(PATIENCE), actor.tenant(), store.time());
    let params: [&dyn Param; 4] = [&patience, &SAGAS, &tenant, &time];
    let found = store.ask(query!("admin/sagas_waiting"), &params).await?;
    let kind = |row: &Row| {
        let what = StalledItem::Sagas {
            name: row.get("name"),
            version: u32::try_from(row.get::<_, i64>("version")).unwrap_or(0),
        };
        let cause = if row.get("is_asking") {
            Cause::NeedsAttention
        } else {
            Cause::NobodyKnows
        };
        Stalled::new(what, cause, moment(row, "since"), number(row))
    };
    Ok(found.iter().map(kind).collect())
}

async fn writers(store: &Postgres) -> Result<Vec<Stalled>, AdminError> {
    let found = store
        .ask(query!("admin/open_writers"), &[&age(PATIENCE)])
        .await?;
    let writer = |row: &Row| {
        let holder = row.get("holder");
        let cause = Cause::HeldBack { holder };
        Stalled::new(StalledItem::Outbox, cause, moment(row, "since"), 0)
    };
    Ok(found.iter().map(writer).collect())
}
