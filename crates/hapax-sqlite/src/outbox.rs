//! The outbox: events are appended by the one writer, so commit order is id order.
//!
//! An event is sealed and put into the words of its row before the writer is asked, and gets its
//! position from the writer's counter. JSON payloads stand as they were given; any other content
//! is base64, with its media type under the header `content-type`, which is therefore reserved.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hapax::{
    Timestamp,
    delivery::Frontier,
    event::{Aggregate, Event, EventId, Headers, NewEvent, Payload},
    idempotency::Claim,
    key::{IdempotencyKey, Tenant},
    limits::{EVENTS_PER_TRANSACTION_MAX, PURGE_ROWS, READ_BYTES},
    outbox::{EventError, OutboxEvent, seal},
    store::{Batch, Outbox, StoreError},
};
use rusqlite::{Connection, Row, Statement, params};

use crate::{
    error::{corrupt, store_error},
    idempotency::rows,
    inbox, query,
    sqlite::Sqlite,
    writer::Desk,
};

const CONTENT_TYPE: &str = "content-type";
const KEY_HASH: &str = "idempotency_key_hash";

impl Outbox for Sqlite {
    async fn read(&self, frontier: &Frontier, limit: usize) -> Result<Batch, StoreError> {
        let high = frontier.high;
        let events = self.look(move |conn| read(conn, high, limit)).await?;
        let high = events.last().map_or(high, |event| event.position);
        Ok(Batch {
            events,
            frontier: Frontier {
                high,
                snapshot: None,
            },
        })
    }

    async fn purge_events(
        &self,
        retention: Duration,
        inbox_retention: Duration,
    ) -> Result<u64, StoreError> {
        let now = self.clock().now().as_millis();
        let before =
            |age: Duration| now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        let (events_before, messages_before) = (before(retention), before(inbox_retention));
        // Looking past all that is parked takes time, which is the readers' and not the writer's.
        let passed = self.read(move |conn| passed(conn, events_before)).await?;
        let purge = move |desk: &mut Desk| {
            let events = purge(&desk.conn, &passed).map_err(store_error)?;
            let messages = inbox::purge(&desk.conn, messages_before);
            Ok(events + messages.map_err(store_error)?)
        };
        self.submit(purge).await
    }
}

/// The events of one transaction, until it commits.
#[derive(Debug)]
pub(crate) struct Draft {
    tenant: Option<Tenant>,
    key: Option<IdempotencyKey>,
    context: Headers,
    events: Vec<Sealed>,
}

/// An event with those of its columns that cost work, done before the writer is asked.
#[derive(Debug)]
pub(crate) struct Sealed {
    event: Event,
    headers: String,
    /// The payload in base64, where it is no JSON.
    encoded: Option<String>,
}

impl Draft {
    /// Of a transaction without a key.
    pub(crate) fn new(tenant: Option<Tenant>, context: Headers) -> Self {
        Self {
            tenant,
            key: None,
            context,
            events: Vec::new(),
        }
    }

    /// Of the transaction that `claim` opens.
    pub(crate) fn of(claim: &Claim, context: Headers) -> Self {
        Self {
            key: Some(claim.scope.key.clone()),
            ..Self::new(Some(claim.scope.tenant.clone()), context)
        }
    }

    /// Adds an event, with the context of its request.
    pub(crate) fn seal(&mut self, new: NewEvent, store: &Sqlite) -> Result<EventId, EventError> {
        let size = self.events.len() + 1;
        let max = EVENTS_PER_TRANSACTION_MAX;
        if size > max {
            return Err(EventError::TooLarge {
                part: "transaction's events",
                size,
                max,
            });
        }
        if let Some(key) = self.key.take() {
            self.context.insert(KEY_HASH.to_owned(), key.short_hash());
        }
        let now = store.clock().now();
        let event = seal(
            new,
            self.tenant.as_ref(),
            &self.context,
            now,
            store.random(),
        )?;
        if event.headers.contains_key(CONTENT_TYPE) {
            let problem = "content-type is the payload's own";
            return Err(EventError::Malformed {
                part: "header",
                problem,
            });
        }
        let id = event.id;
        self.events.push(Sealed::of(event)?);
        Ok(id)
    }

    pub(crate) fn into_events(self) -> Vec<Sealed> {
        self.events
    }

    pub(crate) fn take_events(&mut self) -> Vec<Sealed> {
        std::mem::take(&mut self.events)
    }
}

impl Sealed {
    fn of(mut event: Event) -> Result<Self, EventError> {
        let encoded = match &event.payload {
            Payload::Json(_) => None,
            Payload::Binary {
                content_type,
                bytes,
            } => {
                event
                    .headers
                    .insert(CONTENT_TYPE.to_owned(), content_type.clone());
                Some(STANDARD.encode(bytes))
            }
        };
        let headers = serde_json::to_string(&event.headers).map_err(|_| EventError::Malformed {
            part: "headers",
            problem: "cannot be written as JSON",
        })?;
        Ok(Self {
            event,
            headers,
            encoded,
        })
    }

    fn payload(&self) -> &str {
        match (&self.encoded, &self.event.payload) {
            (None, Payload::Json(text)) => text,
            (encoded, _) => encoded.as_deref().unwrap_or_default(),
        }
    }
}

/// Appends sealed events to the outbox.
pub(crate) fn append(desk: &mut Desk, events: &[Sealed]) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    let first = desk.take_positions(events.len());
    let insert = || {
        let mut emit = desk.conn.prepare_cached(query!("outbox/emit"))?;
        for (position, sealed) in (first..).zip(events) {
            insert(&mut emit, position, sealed)?;
        }
        Ok(())
    };
    insert().map_err(store_error)
}

fn insert(emit: &mut Statement<'_>, position: i64, sealed: &Sealed) -> rusqlite::Result<()> {
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
    ])?;
    Ok(())
}

fn read(conn: &Connection, high: i64, limit: usize) -> Result<Vec<Arc<OutboxEvent>>, StoreError> {
    let mut events = Vec::new();
    let mut read = || {
        let mut statement = conn.prepare_cached(query!("outbox/read"))?;
        let mut found = statement.query(params![high, rows(limit)])?;
        let mut bytes = 0;
        while bytes <= READ_BYTES
            && let Some(row) = found.next()?
        {
            bytes += row.get_ref(7)?.as_bytes()?.len();
            events.push(event(row));
        }
        Ok(())
    };
    read().map_err(store_error)?;
    until_unreadable(events)
}

/// What comes before the first row that cannot be read; its error, when nothing does.
pub(crate) fn until_unreadable<R>(rows: Vec<Result<R, StoreError>>) -> Result<Vec<R>, StoreError> {
    let mut readable = Vec::with_capacity(rows.len());
    for row in rows {
        match row {
            Ok(row) => readable.push(row),
            Err(error) if readable.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(readable)
}

/// Reads an event from the first eleven columns of a row.
pub(crate) fn event(row: &Row<'_>) -> Result<Arc<OutboxEvent>, StoreError> {
    let position: i64 = row
        .get(0)
        .map_err(|error| corrupt(format!("event: {error}")))?;
    columns(row, position)
        .map(Arc::new)
        .map_err(|what| corrupt(format!("event {position}: {what}")))
}

fn columns(row: &Row<'_>, position: i64) -> Result<OutboxEvent, String> {
    let bad = |error: rusqlite::Error| error.to_string();
    let id = row
        .get_ref(1)
        .map_err(bad)?
        .as_str()
        .map_err(|error| error.to_string())?;
    let tenant: Option<String> = row.get(3).map_err(bad)?;
    let kind: Option<String> = row.get(4).map_err(bad)?;
    let about: Option<String> = row.get(5).map_err(bad)?;
    let headers = row
        .get_ref(8)
        .map_err(bad)?
        .as_str()
        .map_err(|error| error.to_string())?;
    let mut headers: Headers = serde_json::from_str(headers).map_err(|error| error.to_string())?;
    let payload = payload(row.get(7).map_err(bad)?, headers.remove(CONTENT_TYPE))?;
    let event = Event {
        id: id.parse().map_err(|error| format!("event id: {error}"))?,
        kind: row.get(2).map_err(bad)?,
        tenant: tenant
            .map(Tenant::new)
            .transpose()
            .map_err(|error| error.to_string())?,
        aggregate: kind.zip(about).map(|(kind, id)| Aggregate { kind, id }),
        sequence: row.get(6).map_err(bad)?,
        payload,
        headers,
        created_at: Timestamp::from_millis(row.get(9).map_err(bad)?),
        available_at: row
            .get::<_, Option<i64>>(10)
            .map_err(bad)?
            .map(Timestamp::from_millis),
    };
    Ok(OutboxEvent { position, event })
}

fn payload(text: String, content_type: Option<String>) -> Result<Payload, String> {
    let Some(content_type) = content_type else {
        return Ok(Payload::Json(text));
    };
    let bytes = STANDARD
        .decode(text)
        .map_err(|error| format!("payload: {error}"))?;
    Ok(Payload::Binary {
        content_type,
        bytes: Bytes::from(bytes),
    })
}

/// Finds a batch of events written before `before` that nobody needs: once so, always so, unless
/// a destination is seen for the first time.
fn passed(conn: &Connection, before: i64) -> rusqlite::Result<Vec<i64>> {
    let mut passed = conn.prepare_cached(query!("outbox/passed"))?;
    let passed = passed.query_map(params![before, rows(PURGE_ROWS)], |row| row.get(0))?;
    passed.collect()
}

/// Deletes those of the batch that are still passed, with what is known of their deliveries.
fn purge(conn: &Connection, passed: &[i64]) -> rusqlite::Result<u64> {
    let mut frontier = conn.prepare_cached(query!("outbox/passed_by_all"))?;
    let frontier: i64 = frontier.query_row([], |row| row.get(0))?;
    let mut gone = 0;
    for position in passed.iter().filter(|position| **position <= frontier) {
        for sql in [
            query!("delivery/purge_attempts"),
            query!("delivery/purge"),
            query!("outbox/purge"),
        ] {
            gone += conn.prepare_cached(sql)?.execute([position])? as u64;
        }
    }
    Ok(gone)
}
