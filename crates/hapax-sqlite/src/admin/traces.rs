//! The status of events at every destination.

use std::collections::HashMap;

use hapax::{
    admin::{AdminError, DeliveryStatus, Trace, destination_of},
    event::{EventId, Payload},
    keyring::Keyring,
    outbox::decode_columns,
};
use rusqlite::Row;

use super::{declared::optional_moment, partitions::Shares, view::View};
use crate::{delivery::dead_letter::attempts, outbox, query};

/// Reads the status of some events, by position, at every partition that delivers their shard.
pub(super) fn of(
    view: &View<'_>,
    positions: &[i64],
) -> Result<HashMap<i64, Vec<Trace>>, AdminError> {
    let mut all = HashMap::new();
    for position in positions {
        let traces = of_event(view, *position)?;
        if !traces.is_empty() {
            all.insert(*position, traces);
        }
    }
    Ok(all)
}

/// A trace without its attempts, and what decides about its status.
struct Stored {
    trace: Trace,
    state: Option<String>,
    is_read: bool,
}

fn of_event(view: &View<'_>, position: i64) -> Result<Vec<Trace>, AdminError> {
    let event = view.first(query!("admin/shard_of"), [position], |row| {
        let event: (u8, String) = (outbox::shard(row)?, row.get("event_id")?);
        Ok(event)
    })?;
    let Some((shard, id)) = event else {
        return Ok(Vec::new());
    };
    let id: Option<EventId> = id.parse().ok();
    let stored = view.list(query!("admin/trace"), [position], |row| {
        stored(row, id, view.keyring)
    })?;
    let shares = Shares::of(stored.iter().map(|it| it.trace.partition.as_str()));
    let mut traces = Vec::new();
    for Stored {
        mut trace,
        state,
        is_read,
    } in stored
    {
        if !shares.has(&trace.partition, shard) {
            continue;
        }
        trace.log = view.with(|conn| attempts(conn, &trace.partition, position))?;
        trace.status = DeliveryStatus::of(state.as_deref(), !trace.log.is_empty(), is_read);
        trace.next_at = trace.next_at.filter(|_| trace.status.is_due());
        traces.push(trace);
    }
    Ok(traces)
}

fn stored(row: &Row<'_>, id: Option<EventId>, keyring: &Keyring) -> rusqlite::Result<Stored> {
    let partition: String = row.get("name")?;
    let trace = Trace {
        destination: destination_of(&partition).to_owned(),
        partition,
        status: DeliveryStatus::Unread,
        attempts: row.get::<_, Option<u32>>("attempt")?.unwrap_or(0),
        next_at: optional_moment(row, "next_at")?,
        last_error: row.get("last_error")?,
        reason: row.get("reason")?,
        behind: row.get("behind")?,
        changed_at: optional_moment(row, "changed_at")?,
        edited: edited(row, id, keyring)?,
        log: Vec::new(),
    };
    Ok(Stored {
        trace,
        state: row.get("state")?,
        is_read: row.get("is_read")?,
    })
}

/// The edited payload. One that cannot be decrypted here is shown as it is stored.
fn edited(
    row: &Row<'_>,
    id: Option<EventId>,
    keyring: &Keyring,
) -> rusqlite::Result<Option<Payload>> {
    let stored: Option<String> = row.get("payload")?;
    let headers: Option<String> = row.get("headers")?;
    Ok(id.zip(stored).map(|(id, payload)| {
        let raw = || Payload::Json(serde_json::Value::String(payload.clone()).to_string());
        let headers = headers.as_deref().unwrap_or("{}");
        let read = decode_columns(id, headers, payload.clone(), keyring);
        read.map_or_else(|_| raw(), |(_, payload)| payload)
    }))
}
