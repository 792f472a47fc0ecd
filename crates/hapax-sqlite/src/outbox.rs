//! The outbox. Only the writer appends events, so their ids increase in commit order.
//!
//! An event is built and encoded before the writer runs the job. It gets its position from the
//! writer's counter.

use std::{sync::Arc, time::Duration};

use hapax::{
    Timestamp,
    delivery::{Frontier, SHARDS, Shards},
    event::{Aggregate, Event, EventId, Headers, Payload},
    key::Tenant,
    keyring::Keyring,
    limits::{LOOKOUT_EVENTS, PURGE_ROWS, READ_BYTES},
    outbox::{BuiltEvent, OutboxEvent, decode_columns, decode_columns_to_show},
    store::{Batch, Outbox, Source, StoreError, until_unreadable},
};
use rusqlite::{Connection, Row, Statement, params, types::ValueRef};

use crate::{
    absence::Absences,
    error::{corrupt, own_error, store_error},
    inbox, query,
    sqlite::Sqlite,
    writer::WriterContext,
};

/// The most events that one read visits to find those of its shards, which bounds how long it holds
/// a connection.
const LOOK_EVENTS: usize = 10_000;

impl Source for Sqlite {
    async fn read(
        &self,
        frontier: &Frontier,
        shards: Shards,
        limit: usize,
    ) -> Result<Batch, StoreError> {
        let mut high = frontier.high;
        loop {
            let keyring = self.keyring().clone();
            let step = self
                .look(move |conn| read(conn, high, shards, limit, &keyring))
                .await?;
            high = step.high;
            if !step.events.is_empty() || step.is_last {
                return Ok(Batch {
                    events: step.events,
                    frontier: Frontier {
                        high,
                        snapshot: None,
                    },
                });
            }
        }
    }

    async fn shards_after(&self, frontier: &Frontier) -> Result<(Shards, Frontier), StoreError> {
        let after = frontier.high;
        let (shards, high) = self
            .look(move |conn| shards_after(conn, after).map_err(store_error))
            .await?;
        let snapshot = None;
        Ok((shards, Frontier { high, snapshot }))
    }
}

impl Outbox for Sqlite {
    async fn purge_events(
        &self,
        retention: Duration,
        inbox_retention: Duration,
    ) -> Result<u64, StoreError> {
        let now = self.clock().now().as_millis();
        let millis = |age: Duration| i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let age = millis(retention);
        let messages_before = now.saturating_sub(millis(inbox_retention));
        // Finding the events takes time if many are parked, so a reader does it, not the writer.
        let known = self.known();
        let look = move |conn: &Connection| {
            let absences = Absences::look(conn, &known, now, age)?;
            let before = now.saturating_sub(age);
            Ok((
                passed(conn, absences.frontier, before, now)?,
                absences.has_notes(),
            ))
        };
        let (passed, has_notes) = self.read(look).await?;
        // A relay may have learned of a destination or opened one since.
        let known = self.known();
        let purge = move |ctx: &mut WriterContext| {
            let (mut events, conn) = (0, &ctx.conn);
            let mut purge_events = || {
                let absences = Absences::look(conn, &known, now, age)?;
                absences.note(conn)?;
                events = purge(conn, &passed, absences.frontier)?;
                tell_gone(&absences.gone, events);
                Ok(())
            };
            if has_notes || !passed.is_empty() {
                purge_events().map_err(store_error)?;
            }
            let messages = inbox::purge(conn, messages_before);
            Ok(events + messages.map_err(store_error)?)
        };
        self.submit(purge).await
    }
}

/// The number of a transaction that appends these events next: the position of the first of them.
pub(crate) fn transaction(ctx: &WriterContext, events: &[BuiltEvent]) -> Option<i64> {
    (!events.is_empty()).then(|| ctx.next_position())
}

/// Appends the events of a transaction to the outbox.
pub(crate) fn append(ctx: &mut WriterContext, events: &[BuiltEvent]) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    let first = ctx.take_positions(events.len());
    let insert = || {
        let mut emit = ctx.conn.prepare_cached(query!("outbox/emit"))?;
        for (position, sealed) in (first..).zip(events) {
            insert(&mut emit, position, sealed, first)?;
        }
        Ok(())
    };
    insert().map_err(own_error)
}

fn insert(
    emit: &mut Statement<'_>,
    position: i64,
    sealed: &BuiltEvent,
    transaction: i64,
) -> rusqlite::Result<()> {
    let event = &sealed.event;
    emit.execute(params![
        position,
        event.id.to_string(),
        event.kind,
        event.tenant.as_ref().map(Tenant::as_str),
        event.aggregate.as_ref().map(|it| &it.kind),
        event.aggregate.as_ref().map(|it| &it.id),
        event.sequence,
        sealed.payload(),
        sealed.headers,
        event.created_at.as_millis(),
        event.available_at.map(Timestamp::as_millis),
        transaction,
    ])?;
    Ok(())
}

/// The result of one read of the outbox.
struct Step {
    events: Vec<Arc<OutboxEvent>>,
    /// The last position that was read.
    high: i64,
    /// Whether there are no events after it.
    is_last: bool,
}

fn read(
    conn: &Connection,
    mut high: i64,
    shards: Shards,
    limit: usize,
    keyring: &Keyring,
) -> Result<Step, StoreError> {
    let (mut events, mut is_last, mut looked) = (Vec::new(), false, 0);
    let mut read = || {
        let mut statement = conn.prepare_cached(query!("outbox/read"))?;
        let mut found = statement.query([high])?;
        let mut bytes = 0;
        while bytes <= READ_BYTES && events.len() < limit && looked < LOOK_EVENTS {
            let Some(row) = found.next()? else {
                is_last = true;
                break;
            };
            looked += 1;
            high = row.get(0)?;
            if shards.is_all() || shards.contains(shard(row)?) {
                bytes += stored_bytes(row)?;
                events.push(event(row, keyring));
            }
        }
        Ok(())
    };
    read().map_err(store_error)?;
    let count = events.len();
    let events = until_unreadable(events)?;
    if let Some(last) = events.last().filter(|_| events.len() < count) {
        // The event after it is unreadable.
        high = last.position;
    }
    Ok(Step {
        events,
        high,
        is_last,
    })
}

/// The shards of the next events, all if there may be more, and the last position that was read.
fn shards_after(conn: &Connection, mut high: i64) -> rusqlite::Result<(Shards, i64)> {
    let mut statement = conn.prepare_cached(query!("outbox/read"))?;
    let mut found = statement.query([high])?;
    let mut shards = Shards::NONE;
    for _ in 0..LOOKOUT_EVENTS {
        let Some(row) = found.next()? else {
            return Ok((shards, high));
        };
        high = row.get(0)?;
        shards = shards.with(shard(row)?);
    }
    Ok((Shards::ALL, high))
}

/// Returns the shard of an event, from its aggregate, or from its id if it has none. This function
/// must never change: an event would move to a partition that has already passed its position.
pub(crate) fn shard(row: &Row<'_>) -> rusqlite::Result<u8> {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash = OFFSET;
    let mut add = |word: &[u8]| {
        for byte in word {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    };
    match (row.get_ref("aggregate_type")?, row.get_ref("aggregate_id")?) {
        (ValueRef::Text(kind), ValueRef::Text(id)) => {
            add(kind);
            add(b"\n");
            add(id);
        }
        _ => add(row.get_ref("event_id")?.as_bytes()?),
    }
    // The low bits of this hash depend mostly on the last bytes, so all bits are folded into them.
    let folded = hash ^ hash >> 32;
    let folded = folded ^ folded >> 16;
    let folded = folded ^ folded >> 8;
    let folded = folded ^ folded >> 4;
    Ok(folded.to_le_bytes()[0] % SHARDS)
}

/// The columns whose bytes a read counts.
const STORED_COLUMNS: [&str; 6] = [
    "type",
    "tenant",
    "aggregate_type",
    "aggregate_id",
    "payload",
    "headers",
];

/// The stored size of an event in bytes: its payload, its headers and its names.
pub(crate) fn stored_bytes(row: &Row<'_>) -> rusqlite::Result<usize> {
    let mut bytes = 0;
    for column in STORED_COLUMNS {
        if let ValueRef::Text(stored) | ValueRef::Blob(stored) = row.get_ref(column)? {
            bytes += stored.len();
        }
    }
    Ok(bytes)
}

/// Reads an event from the columns of a row that are named like those of the outbox.
pub(crate) fn event(row: &Row<'_>, keyring: &Keyring) -> Result<Arc<OutboxEvent>, StoreError> {
    read_event(row, keyring, decode_columns)
}

/// Reads an event like [`event`], to display it. A payload that cannot be decrypted here is returned
/// as it is stored; the headers name the key that encrypted it.
pub(crate) fn shown(row: &Row<'_>, keyring: &Keyring) -> Result<Arc<OutboxEvent>, StoreError> {
    read_event(row, keyring, decode_columns_to_show)
}

/// Decodes the headers and the payload of an event, like [`decode_columns`].
type DecodeColumns = fn(EventId, &str, String, &Keyring) -> Result<(Headers, Payload), String>;

fn read_event(
    row: &Row<'_>,
    keyring: &Keyring,
    decode_columns: DecodeColumns,
) -> Result<Arc<OutboxEvent>, StoreError> {
    let position: i64 = row
        .get("id")
        .map_err(|error| corrupt(format!("event: {error}")))?;
    columns(row, position, keyring, decode_columns)
        .map(Arc::new)
        .map_err(|what| corrupt(format!("event {position}: {what}")))
}

fn columns(
    row: &Row<'_>,
    position: i64,
    keyring: &Keyring,
    decode_columns: DecodeColumns,
) -> Result<OutboxEvent, String> {
    let bad = |error: rusqlite::Error| error.to_string();
    let id = row
        .get_ref("event_id")
        .map_err(bad)?
        .as_str()
        .map_err(|error| error.to_string())?;
    let id = id.parse().map_err(|error| format!("event id: {error}"))?;
    let tenant: Option<String> = row.get("tenant").map_err(bad)?;
    let kind: Option<String> = row.get("aggregate_type").map_err(bad)?;
    let about: Option<String> = row.get("aggregate_id").map_err(bad)?;
    let headers = row
        .get_ref("headers")
        .map_err(bad)?
        .as_str()
        .map_err(|error| error.to_string())?;
    let (headers, payload) =
        decode_columns(id, headers, row.get("payload").map_err(bad)?, keyring)?;
    let event = Event {
        id,
        kind: row.get("type").map_err(bad)?,
        tenant: tenant
            .map(Tenant::new)
            .transpose()
            .map_err(|error| error.to_string())?,
        aggregate: kind.zip(about).map(|(kind, id)| Aggregate { kind, id }),
        sequence: row.get("sequence").map_err(bad)?,
        payload,
        headers,
        created_at: Timestamp::from_millis(row.get("created_at").map_err(bad)?),
        available_at: row
            .get::<_, Option<i64>>("available_at")
            .map_err(bad)?
            .map(Timestamp::from_millis),
    };
    Ok(OutboxEvent { position, event })
}

/// Finds a batch of events up to `frontier` that were written before `before` and that no delivery
/// needs. Such events stay unneeded, unless a new destination appears or an operator makes a delivery
/// due again.
///
/// Events are written in the order of their ids. A timestamp after `now` is wrong, because the
/// clock was ahead when the event was written. Such an event counts as old as the next event with a
/// timestamp in the past.
fn passed(conn: &Connection, frontier: i64, before: i64, now: i64) -> rusqlite::Result<Vec<i64>> {
    let mut list = conn.prepare_cached(query!("outbox/passed"))?;
    let mut rows = list.query([frontier])?;
    let (mut passed, mut ahead, mut young) = (Vec::new(), Vec::new(), 0);
    while passed.len() < PURGE_ROWS && young < PURGE_ROWS {
        let Some(row) = rows.next()? else { break };
        let (id, created_at): (i64, i64) = (row.get(0)?, row.get(1)?);
        if created_at <= before {
            passed.append(&mut ahead);
            passed.push(id);
        } else if created_at <= now {
            young += 1;
        } else if ahead.len() < PURGE_ROWS {
            ahead.push(id);
        }
    }
    passed.truncate(PURGE_ROWS);
    Ok(passed)
}

/// Deletes the events of the batch up to `frontier` that no delivery needs, with their finished
/// deliveries and attempts.
fn purge(conn: &Connection, passed: &[i64], frontier: i64) -> rusqlite::Result<u64> {
    let mut gone = 0;
    let mut is_needed = conn.prepare_cached(query!("outbox/is_needed"))?;
    for position in passed.iter().filter(|position| **position <= frontier) {
        if is_needed.query_row([position], |row| row.get(0))? {
            continue;
        }
        for sql in [
            query!("delivery/purge_attempts"),
            query!("delivery/purge_arrivals"),
            query!("delivery/purge"),
            query!("outbox/purge"),
        ] {
            gone += conn.prepare_cached(sql)?.execute([position])? as u64;
        }
    }
    Ok(gone)
}

/// Logs the destinations for which events are no longer kept, if events were deleted.
fn tell_gone(gone: &[String], events: u64) {
    for destination in gone.iter().filter(|_| events > 0) {
        tracing::warn!(
            destination,
            "no relay has served this destination for longer than events are kept: events that it \
             has not read are deleted; configure it in a relay again if it needs its events"
        );
    }
}
