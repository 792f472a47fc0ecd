//! Dead letters: counting, replaying, editing and discarding them.

use std::ops::ControlFlow;

use hapax::{
    admin::{self, Actor, AdminError, delivery_object},
    outbox::BuiltEvent,
};
use rusqlite::{Row, params};
use serde_json::Value;

use super::{audited::AuditedTransaction, filters::Filters, seen::Seen, view::View};
use crate::{delivery::settle::release, error::store_error, outbox, query};

/// Which dead letters of a partition are visited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Those after this position,
    pub(super) after: i64,
    /// before this one,
    pub(super) until: i64,
    /// and with at most this number.
    pub(super) deaths: i64,
}

impl Bounds {
    /// All that were dead when a snapshot was taken.
    pub(super) fn of(seen: &Seen) -> Self {
        Self {
            after: 0,
            until: seen.until,
            deaths: seen.deaths,
        }
    }
}

/// Visits dead letters of a partition in order until `visit` breaks, each with its position and
/// whether the filter matches it.
pub(super) fn visit(
    view: &View<'_>,
    find: &Filters,
    partition: &str,
    bounds: Bounds,
    mut visit: impl FnMut(i64, bool) -> ControlFlow<()>,
) -> Result<(), AdminError> {
    let params = params![partition, bounds.after, bounds.until, bounds.deaths];
    view.visit(query!("admin/dead_beyond"), params, |row| {
        let is_kept = row.get_ref("event_id")?.as_str_or_null()?.is_some();
        let fits = is_kept && find.event(row)? && find.delivery(row)?;
        Ok(visit(row.get("position")?, fits))
    })
}

/// Counts the dead letters of a partition that match a filter.
pub(super) fn count(
    view: &View<'_>,
    find: &Filters,
    partition: &str,
    bounds: Bounds,
) -> Result<u64, AdminError> {
    let mut count = 0;
    visit(view, find, partition, bounds, |_, fits| {
        count += u64::from(fits);
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

/// The edited event that is offered in place of a dead letter's event; `None` if it is not dead.
pub(super) fn edited(
    act: &AuditedTransaction<'_>,
    partition: &str,
    position: i64,
    patch: &str,
) -> Result<Option<BuiltEvent>, AdminError> {
    let read = |row: &Row<'_>| {
        let headers: String = row.get("headers")?;
        Ok((headers, outbox::event(row, act.keyring)))
    };
    let params = params![partition, position];
    let Some((headers, event)) = act.first(query!("admin/dead_letter"), params, read)? else {
        return Ok(None);
    };
    let event =
        event.map_err(|error| AdminError::conflict(format!("it cannot be read here: {error}")))?;
    admin::edited(&event, &headers, patch, act.keyring).map(Some)
}

/// Makes dead letters of a partition due again. Returns their number.
pub(super) fn replay_all(
    act: &AuditedTransaction<'_>,
    partition: &str,
    positions: &[i64],
) -> Result<u64, AdminError> {
    let (now, mut replayed) = (act.now.as_millis(), 0);
    for position in positions {
        let params = params![partition, position, now];
        replayed += act.execute(query!("admin/replay"), params)? as u64;
    }
    Ok(replayed)
}

/// Discards dead letters of a partition, and releases the deliveries that they blocked. Returns
/// their number.
pub(super) fn discard_all(
    act: &AuditedTransaction<'_>,
    partition: &str,
    positions: &[i64],
    reason: &str,
) -> Result<u64, AdminError> {
    let (now, mut discarded) = (act.now.as_millis(), 0);
    let mut keys = Vec::new();
    for position in positions {
        let params = params![partition, position, now, reason];
        let key = act.first(query!("delivery/discard"), params, |row| row.get(0))?;
        if let Some(key) = key {
            discarded += 1;
            keys.extend::<Option<String>>(key);
        }
    }
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        act.with(|conn| release(conn, partition, &key, now).map_err(store_error))?;
    }
    Ok(discarded)
}

/// Checks that the delivery exists and this actor may see it. Returns its state.
pub(super) fn look(
    view: &View<'_>,
    actor: &Actor,
    partition: &str,
    position: i64,
) -> Result<String, AdminError> {
    let params = params![partition, position];
    let read = |row: &Row<'_>| {
        let found: (String, Option<String>) = (row.get("state")?, row.get("tenant")?);
        Ok(found)
    };
    let found = view.first(query!("admin/delivery"), params, read)?;
    let is_seen = |found: &(String, Option<String>)| {
        let own = actor.tenant();
        own.is_none() || found.1.as_deref() == own
    };
    let found = found.filter(is_seen);
    let (state, _) =
        found.ok_or_else(|| AdminError::not_found(delivery_object(partition, position)))?;
    Ok(state)
}

/// Writes the outcome to the audit log, and returns the refusal if nothing was changed.
pub(super) fn finish(
    act: &AuditedTransaction<'_>,
    actor: &Actor,
    action: &str,
    (partition, position): (&str, i64),
    detail: &Value,
    changed: u64,
) -> Result<Result<(), AdminError>, AdminError> {
    let object = delivery_object(partition, position);
    let outcome = if changed == 0 { "refused" } else { "done" };
    act.note(actor, action, &object, detail, outcome)?;
    Ok(match changed {
        0 => Err(AdminError::conflict(format!("{object} is not dead"))),
        _ => Ok(()),
    })
}
