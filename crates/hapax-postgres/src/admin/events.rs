//! Queries for events: by a filter, by id, and the status of each at every destination.
//!
//! There is no index for these queries, because every producer would pay for it. Positions increase
//! with time, so the position of a point in time is found by binary search. The clocks of producers
//! may differ by [`SKEW`]. If a clock was further off, a list for a window of time and
//! [`find_near`] may miss its events. [`find`] does not miss any: it reads all events before it
//! reports that there is none.

use std::{collections::HashMap, sync::Arc, time::Duration};

use hapax::{
    Timestamp,
    delivery::Attempt,
    event::{EventId, Payload},
    keyring::Keyring,
    outbox::{OutboxEvent, unseal},
    store::StoreError,
};
use tokio_postgres::Row;

use super::{Actor, AdminError, Filter, PAGE_MAX, Page, filters::Filters};
use crate::{
    delivery::dead_letter::attempts,
    outbox,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

/// Maximum difference between the clocks of producers for which a list by time is complete.
pub const SKEW: Duration = Duration::from_mins(5);
/// Events that one page reads. This takes some tens of milliseconds.
const LOOK: i64 = 20_000;
/// Events that are read on either side of a point in time to find one that was created about then.
/// This takes some tens of milliseconds.
const LOOK_NEAR: i64 = 20_000;

/// An event without its payload and headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The position in the outbox.
    pub position: i64,
    /// The id of the event.
    pub id: String,
    /// The type.
    pub kind: String,
    /// The tenant.
    pub tenant: Option<String>,
    /// The type of the aggregate.
    pub aggregate_type: Option<String>,
    /// The id of the aggregate.
    pub aggregate_id: Option<String>,
    /// The sequence number within the aggregate.
    pub sequence: Option<i64>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it may first be delivered.
    pub available_at: Option<Timestamp>,
    /// The size of the stored payload, in bytes.
    pub payload_bytes: u64,
}

/// The status of an event at one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The partition of the destination to which it belongs.
    pub partition: String,
    /// The status.
    pub status: DeliveryStatus,
    /// Attempts made since it was parked or replayed.
    pub attempts: u32,
    /// When it is due, if it is scheduled or waits for a retry.
    pub next_at: Option<Timestamp>,
    /// The last error.
    pub last_error: Option<String>,
    /// Why it was discarded.
    pub reason: Option<String>,
    /// The earlier delivery of its order key that blocks it.
    pub behind: Option<i64>,
    /// When the status was last changed.
    pub changed_at: Option<Timestamp>,
    /// The edited payload that is offered here in place of the event's, if an operator edited it.
    pub edited: Option<Payload>,
    /// All known attempts.
    pub log: Vec<Attempt>,
}

/// The status of an event at a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryStatus {
    /// The relay has not read it yet.
    Unread,
    /// It waits for the time at which it may be delivered.
    Scheduled,
    /// An attempt failed, and it will be offered again.
    Retrying,
    /// An earlier event of its order key blocks it.
    Blocked,
    /// It is a dead letter.
    Dead,
    /// It was delivered.
    Delivered,
    /// An operator discarded it.
    Discarded,
    /// The relay has read it, and no attempt is known: it is not routed to this destination, is
    /// being offered, or was delivered so long ago that the attempt was purged.
    Passed,
}

impl DeliveryStatus {
    /// The name in rows and responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Scheduled => "scheduled",
            Self::Retrying => "retrying",
            Self::Blocked => "blocked",
            Self::Dead => "dead",
            Self::Delivered => "delivered",
            Self::Discarded => "discarded",
            Self::Passed => "passed",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        use DeliveryStatus::{Blocked, Dead, Delivered, Discarded, Retrying, Scheduled};
        [Scheduled, Retrying, Blocked, Dead, Delivered, Discarded]
            .into_iter()
            .find(|it| it.as_str() == word)
    }
}

/// Lists events below a position, the newest first.
///
/// If the filter contains an id, the event is first searched near the time in its id, and then like
/// any other, from the newest on.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn list(
    store: &Postgres,
    actor: &Actor,
    filter: &Filter,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<Summary, i64>, AdminError> {
    let nothing = Page {
        items: Vec::new(),
        next: None,
    };
    let Some(find) = Filters::of(actor, filter) else {
        return Ok(nothing);
    };
    if before.is_none()
        && let Some(position) = place_of(store, actor, filter).await?
    {
        let (high, low) = (position.saturating_add(1), position);
        let params = find.with(&[&high, &low, &1_i64, &1_i64]);
        let found = store.ask(query!("admin/events"), &params).await?;
        let items = found.iter().map(summary).collect();
        return Ok(Page { items, next: None });
    }
    let (low, high) = window(store, filter).await?;
    let high = before.map_or(high, |before| before.min(high));
    let count = rows(limit.clamp(1, PAGE_MAX));
    let params = find.with(&[&high, &low, &LOOK, &count]);
    let found = store.ask(query!("admin/events"), &params).await?;
    let items: Vec<Summary> = found.iter().map(summary).collect();
    let next = if rows(items.len()) == count {
        items.last().map(|it| it.position)
    } else {
        let params: [&dyn Param; 3] = [&high, &low, &(LOOK - 1)];
        let ends = store.ask(query!("admin/looked_until"), &params).await?;
        ends.first().map(|row| row.get(0))
    };
    Ok(Page { items, next })
}

/// Counts the events that match a filter. Without an id or a time it reads all events.
///
/// # Errors
/// Fails if the store cannot be read, or does not respond in time.
pub async fn count(store: &Postgres, actor: &Actor, filter: &Filter) -> Result<u64, AdminError> {
    let Some(find) = Filters::of(actor, filter) else {
        return Ok(0);
    };
    let (low, high) = match place_of(store, actor, filter).await? {
        Some(position) => (position, position.saturating_add(1)),
        None => window(store, filter).await?,
    };
    let params = find.with(&[&high, &low]);
    let found = store.ask(query!("admin/count_events"), &params).await?;
    Ok(found
        .first()
        .map_or(0, |row| row.get::<_, i64>(0))
        .unsigned_abs())
}

/// Finds an event by its id. This may read all events.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn find(
    store: &Postgres,
    actor: &Actor,
    id: EventId,
) -> Result<Option<Arc<OutboxEvent>>, StoreError> {
    if let Some(near) = find_near(store, actor, id).await? {
        return Ok(Some(near));
    }
    let (text, tenant) = (id.to_string(), actor.tenant());
    let moment = moment_of(id);
    let since = Moment(Timestamp::from_millis(moment.as_millis() - millis(SKEW)));
    let until = Moment(moment.after(SKEW));
    let around = (id_at(store, since).await?, id_at(store, until).await?);
    for (low, high) in [around, (i64::MIN, i64::MAX)] {
        let params: [&dyn Param; 4] = [&text, &low, &high, &tenant];
        let found = store.ask(query!("admin/find_event"), &params).await?;
        if let Some(row) = found.first() {
            return outbox::shown(row, store.keyring()).map(Some);
        }
    }
    Ok(None)
}

/// Finds an event by its id among the events nearest to the time in the id. It is not found if the
/// id was created elsewhere or long before the event, or by a clock that was far off.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn find_near(
    store: &Postgres,
    actor: &Actor,
    id: EventId,
) -> Result<Option<Arc<OutboxEvent>>, StoreError> {
    let (text, tenant) = (id.to_string(), actor.tenant());
    let middle = id_at(store, Moment(moment_of(id))).await?;
    let params: [&dyn Param; 4] = [&text, &middle, &LOOK_NEAR, &tenant];
    let sql = query!("admin/find_event_near");
    let found = store.ask(sql, &params).await?;
    let shown = |row| outbox::shown(row, store.keyring());
    found.first().map(shown).transpose()
}

/// Reads the event at a position.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn at(
    store: &Postgres,
    actor: &Actor,
    position: i64,
) -> Result<Option<Arc<OutboxEvent>>, StoreError> {
    let params: [&dyn Param; 2] = [&position, &actor.tenant()];
    let found = store.ask(query!("admin/event"), &params).await?;
    let shown = |row| outbox::shown(row, store.keyring());
    found.first().map(shown).transpose()
}

/// The status of the event at a position at every destination that a relay has opened.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn trace(store: &Postgres, position: i64) -> Result<Vec<Trace>, StoreError> {
    let mut found = traces(store, &[position]).await?;
    Ok(found.remove(&position).unwrap_or_default())
}

/// The status of several events, by position. This takes two statements for any number of events.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn traces(
    store: &Postgres,
    positions: &[i64],
) -> Result<HashMap<i64, Vec<Trace>>, StoreError> {
    let positions = positions.to_vec();
    let found = store.ask(query!("admin/trace"), &[&positions]).await?;
    let at = found.iter().map(|row| (row.get("id"), row.get("name")));
    let at: Vec<(i64, &str)> = at.collect();
    let mut logs: HashMap<(i64, String), Vec<Attempt>> = HashMap::new();
    for (partition, attempt) in attempts(store, &at).await? {
        let log = logs.entry((attempt.position, partition)).or_default();
        log.push(attempt);
    }
    let mut traces: HashMap<i64, Vec<Trace>> = HashMap::new();
    for row in &found {
        let of = (row.get("id"), row.get("name"));
        let log = logs.remove(&of).unwrap_or_default();
        let (position, partition) = of;
        traces
            .entry(position)
            .or_default()
            .push(traced(row, store.keyring(), partition, log));
    }
    Ok(traces)
}

fn traced(row: &Row, keyring: &Keyring, partition: String, log: Vec<Attempt>) -> Trace {
    let state: Option<&str> = row.get("state");
    let status = match state.and_then(DeliveryStatus::parse) {
        Some(status) => status,
        None if !log.is_empty() => DeliveryStatus::Delivered,
        None if row.get::<_, bool>("is_read") => DeliveryStatus::Passed,
        None => DeliveryStatus::Unread,
    };
    let waits = matches!(status, DeliveryStatus::Scheduled | DeliveryStatus::Retrying);
    let moment = |column| row.get::<_, Option<Moment>>(column).map(|it| it.0);
    Trace {
        partition,
        status,
        attempts: row
            .get::<_, Option<i32>>("attempt")
            .unwrap_or(0)
            .unsigned_abs(),
        next_at: moment("next_at").filter(|_| waits),
        last_error: row.get("last_error"),
        reason: row.get("reason"),
        behind: row.get("behind"),
        changed_at: moment("changed_at"),
        edited: row.get::<_, Option<String>>("payload").and_then(|payload| {
            let id = row.get::<_, &str>("event_id").parse().ok()?;
            let headers = row.get::<_, Option<&str>>("headers").unwrap_or("{}");
            // A payload that cannot be decrypted here is shown as it is stored.
            let raw = || Payload::Json(serde_json::Value::String(payload.clone()).to_string());
            let read = unseal(id, headers, payload.clone(), keyring);
            Some(read.map_or_else(|_| raw(), |(_, payload)| payload))
        }),
        log,
    }
}

/// The position of the event whose id the filter contains, if it is near the time in the id.
pub(super) async fn place_of(
    store: &Postgres,
    actor: &Actor,
    filter: &Filter,
) -> Result<Option<i64>, StoreError> {
    let Some(id) = filter.event_id else {
        return Ok(None);
    };
    let near = find_near(store, actor, id).await?;
    Ok(near.map(|event| event.position))
}

/// The positions between which the events of a filter's window of time are.
async fn window(store: &Postgres, filter: &Filter) -> Result<(i64, i64), StoreError> {
    let mut bounds = (i64::MIN, i64::MAX);
    if let Some(since) = filter.since {
        let since = since.as_millis().saturating_sub(millis(SKEW));
        bounds.0 = id_at(store, Moment(Timestamp::from_millis(since))).await?;
    }
    if let Some(until) = filter.until {
        bounds.1 = id_at(store, Moment(until.after(SKEW))).await?;
    }
    Ok(bounds)
}

pub(super) async fn id_at(store: &Postgres, moment: Moment) -> Result<i64, StoreError> {
    // The database cannot represent times far outside of this range.
    const YEARS: i64 = 4_000 * 365 * 24 * 3_600 * 1_000;
    let moment = Moment(Timestamp::from_millis(
        moment.0.as_millis().clamp(-YEARS / 10, YEARS),
    ));
    let found = store.ask(query!("admin/id_at"), &[&moment]).await?;
    Ok(found.first().map_or(0, |row| row.get(0)))
}

/// The time in an id, whose first 48 bits are milliseconds.
fn moment_of(id: EventId) -> Timestamp {
    let text = id.to_string();
    let digits: String = text.chars().filter(|it| *it != '-').take(12).collect();
    Timestamp::from_millis(i64::from_str_radix(&digits, 16).unwrap_or(0))
}

pub(super) fn millis(duration: Duration) -> i64 {
    crate::value::millis(duration)
}

fn summary(row: &Row) -> Summary {
    Summary {
        position: row.get("id"),
        id: row.get("event_id"),
        kind: row.get("type"),
        tenant: row.get("tenant"),
        aggregate_type: row.get("aggregate_type"),
        aggregate_id: row.get("aggregate_id"),
        sequence: row.get("sequence"),
        created_at: row.get::<_, Moment>("created_at").0,
        available_at: row.get::<_, Option<Moment>>("available_at").map(|it| it.0),
        payload_bytes: row.get::<_, i64>("payload_bytes").unsigned_abs(),
    }
}
