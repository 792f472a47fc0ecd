//! List of what is stalled, with one reason for each item.
//!
//! No transaction holds back the outbox here: an event gets its position when its transaction ends.

use std::{cmp::Reverse, collections::BTreeMap};

use hapax::{
    Timestamp,
    admin::{Actor, AdminError, Cause, PATIENCE, PartitionStatus, Stalled, StalledItem},
};
use rusqlite::{Row, params};

use super::{
    declared::{moment, optional_moment},
    events::before,
    view::View,
};
use crate::query;

/// Overdue sagas that are read.
const LOOK_SAGAS: i64 = 10_000;

/// What is stalled and why, the most severe first.
pub(super) fn of_partitions(
    view: &View<'_>,
    actor: &Actor,
    partitions: &[PartitionStatus],
) -> Result<Vec<Stalled>, AdminError> {
    let (mut all, moving) = PartitionStatus::all_stalled(partitions);
    let (mut keys, mut types) = (Vec::new(), Vec::new());
    for partition in &moving {
        let (dead, due) = heads(view, partition)?;
        keys.append(&mut order_keys(view, partition, &dead, &due)?);
        types.append(&mut event_types(view, partition, &dead, &due)?);
    }
    keys.sort_by_key(|it| Reverse(it.waiting));
    let bound = usize::try_from(Stalled::ORDER_KEYS).unwrap_or(usize::MAX);
    all.extend(keys.into_iter().take(bound));
    types.sort_by_key(|it| Reverse(it.waiting));
    let bound = usize::try_from(Stalled::EVENT_TYPES).unwrap_or(usize::MAX);
    all.extend(types.into_iter().take(bound));
    all.extend(sagas_asking(view, actor)?);
    all.extend(sagas_waiting(view, actor)?);
    all.sort_by_key(|it| it.cause.rank());
    Ok(all)
}

/// A delivery that may block others.
struct Head {
    position: i64,
    state: String,
    attempts: u32,
    next_at: Timestamp,
    order_key: Option<String>,
    last_error: Option<String>,
    changed_at: Timestamp,
}

/// The oldest dead letters of a partition, and the deliveries that are due next.
fn heads(view: &View<'_>, partition: &str) -> Result<(Vec<Head>, Vec<Head>), AdminError> {
    let params = params![partition, Stalled::HEADS];
    let dead = view.list(query!("admin/oldest_dead"), params, head)?;
    let params = params![partition, Stalled::HEADS];
    let due = view.list(query!("admin/retrying"), params, head)?;
    Ok((dead, due))
}

fn head(row: &Row<'_>) -> rusqlite::Result<Head> {
    Ok(Head {
        position: row.get("position")?,
        state: row.get("state")?,
        attempts: row.get("attempt")?,
        next_at: moment(row, "next_at")?,
        order_key: row.get("order_key")?,
        last_error: row.get("last_error")?,
        changed_at: moment(row, "changed_at")?,
    })
}

/// The order keys that a delivery blocks, by the position of that delivery.
fn order_keys(
    view: &View<'_>,
    partition: &str,
    dead: &[Head],
    due: &[Head],
) -> Result<Vec<Stalled>, AdminError> {
    let mut all = Vec::new();
    let mut heads: Vec<&Head> = dead.iter().chain(due).collect();
    heads.retain(|it| it.state != "scheduled");
    heads.sort_by_key(|it| it.position);
    for head in heads {
        let Some(key) = &head.order_key else { continue };
        let params = params![partition, key, head.position, Stalled::HEADS];
        let number = view.first(query!("admin/held_up"), params, |row| row.get(0))?;
        let number: i64 = number.unwrap_or(0);
        if number == 0 {
            continue;
        }
        let (position, error) = (head.position, head.last_error.clone());
        let cause = if head.state == "dead" {
            Cause::BehindDeadLetter { position, error }
        } else {
            Cause::WaitsForRetry {
                position,
                attempts: head.attempts,
                next_at: head.next_at,
                error,
            }
        };
        let what = StalledItem::order_key(partition.to_owned(), key);
        let since = Some(head.changed_at);
        all.push(Stalled::new(what, cause, since, number.unsigned_abs()));
    }
    Ok(all)
}

/// Events of one type that their receiver declined.
struct Declined {
    first: i64,
    last: i64,
    error: Option<String>,
    since: Timestamp,
    number: u64,
}

/// The types of the events that their receiver declined while it accepts others.
fn event_types(
    view: &View<'_>,
    partition: &str,
    dead: &[Head],
    due: &[Head],
) -> Result<Vec<Stalled>, AdminError> {
    let mut types: BTreeMap<String, Declined> = BTreeMap::new();
    for head in dead.iter().chain(due) {
        let params = params![partition, head.position];
        let found = view.first(query!("admin/declined"), params, |row| {
            let found: (Option<String>, String) = (row.get("error")?, row.get("type")?);
            Ok(found)
        })?;
        let Some((error, kind)) = found else { continue };
        let declined = types.entry(kind).or_insert(Declined {
            first: head.position,
            last: head.position,
            error: error.clone(),
            since: head.changed_at,
            number: 0,
        });
        declined.number += 1;
        declined.first = declined.first.min(head.position);
        declined.since = declined.since.min(head.changed_at);
        if head.position > declined.last {
            (declined.last, declined.error) = (head.position, error);
        }
    }
    let stalled = |(kind, declined): (String, Declined)| {
        let partition = partition.to_owned();
        let what = StalledItem::EventType { partition, kind };
        let cause = Cause::Declined {
            position: declined.first,
            error: declined.error,
        };
        Stalled::new(what, cause, Some(declined.since), declined.number)
    };
    Ok(types.into_iter().map(stalled).collect())
}

/// The sagas that need a person's decision.
fn sagas_asking(view: &View<'_>, actor: &Actor) -> Result<Vec<Stalled>, AdminError> {
    let params = params![Stalled::SAGAS, actor.tenant()];
    view.list(query!("admin/sagas_asking"), params, |row| {
        kind(row, Cause::NeedsAttention)
    })
}

/// The sagas that are due and that no worker takes.
fn sagas_waiting(view: &View<'_>, actor: &Actor) -> Result<Vec<Stalled>, AdminError> {
    let since = before(view.now, PATIENCE);
    let params = params![since.as_millis(), LOOK_SAGAS, actor.tenant()];
    view.list(query!("admin/sagas_waiting"), params, |row| {
        kind(row, Cause::NobodyKnows)
    })
}

fn kind(row: &Row<'_>, cause: Cause) -> rusqlite::Result<Stalled> {
    let what = StalledItem::Sagas {
        name: row.get("name")?,
        version: row.get("version")?,
    };
    let number = row.get::<_, i64>("number")?.min(Stalled::SAGAS);
    let since = optional_moment(row, "since")?;
    Ok(Stalled::new(what, cause, since, number.unsigned_abs()))
}
