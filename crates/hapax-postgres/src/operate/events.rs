//! Events looked at: listed by a filter, found by their id, and where each stands at every
//! destination.
//!
//! No index is kept for any of it, for every producer would pay: ids rise with time, and a moment
//! is found among them by halves. Clocks that differ are allowed [`SKEW`]; a list of a window may
//! leave out events of a clock that was further off, and so does [`find_near`]; [`find`] does not, and
//! looks at every event there is before it says that there is none.

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

use super::{Actor, Filter, OperateError, PAGE_MAX, Page, find::Find};
use crate::{
    dead_letter::attempts,
    outbox::{self, rows},
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// How far the clocks of emitters may differ for a window of time to show all of theirs.
pub const SKEW: Duration = Duration::from_mins(5);
/// Events that one page looks at: some tens of milliseconds.
const LOOK: i64 = 20_000;
/// Events that are looked at on either side of a moment for one that was created about then: some tens
/// of milliseconds.
const LOOK_NEAR: i64 = 20_000;

/// An event without its payload and headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its position in the outbox.
    pub position: i64,
    /// Its own id.
    pub id: String,
    /// Its type.
    pub kind: String,
    /// Whose it is.
    pub tenant: Option<String>,
    /// What kind of thing it is about.
    pub aggregate_type: Option<String>,
    /// Which one.
    pub aggregate_id: Option<String>,
    /// Its place within its aggregate.
    pub sequence: Option<i64>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it may first be delivered.
    pub available_at: Option<Timestamp>,
    /// Bytes of its payload, as it is stored.
    pub payload_bytes: u64,
}

/// Where an event stands at one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The part of the destination that carries it.
    pub part: String,
    /// How it stands.
    pub standing: Standing,
    /// Attempts made since it was parked or replayed.
    pub attempts: u32,
    /// When it falls due, where it waits for that.
    pub next_at: Option<Timestamp>,
    /// The last error.
    pub last_error: Option<String>,
    /// Why it was discarded.
    pub reason: Option<String>,
    /// The delivery of its key that stands before it.
    pub behind: Option<i64>,
    /// When that was last written down.
    pub changed_at: Option<Timestamp>,
    /// What is offered here in place of what the event says, where somebody edited that.
    pub edited: Option<Payload>,
    /// Every attempt that is known.
    pub log: Vec<Attempt>,
}

/// How an event stands at a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was not read yet.
    Unread,
    /// It waits for its moment.
    Scheduled,
    /// It failed and will be offered again.
    Retrying,
    /// An earlier event of its key is in the way.
    Blocked,
    /// It is given up.
    Dead,
    /// It arrived.
    Delivered,
    /// It was given up for good.
    Discarded,
    /// It was read, and no attempt is known: it is not routed here, is on the wire, or arrived so
    /// long ago that nobody remembers.
    Passed,
}

impl Standing {
    /// The word that stands in rows and answers.
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
        use Standing::{Blocked, Dead, Delivered, Discarded, Retrying, Scheduled};
        [Scheduled, Retrying, Blocked, Dead, Delivered, Discarded]
            .into_iter()
            .find(|it| it.as_str() == word)
    }
}

/// Lists events below a position, the newest first.
///
/// One that is asked for by its id is looked for around the moment that this tells of, and else, like
/// everything, among the newest first.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn list(
    store: &Postgres,
    actor: &Actor,
    filter: &Filter,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<Summary, i64>, OperateError> {
    let nothing = Page {
        items: Vec::new(),
        next: None,
    };
    let Some(find) = Find::of(actor, filter) else {
        return Ok(nothing);
    };
    if before.is_none()
        && let Some(position) = place_of(store, actor, filter).await?
    {
        let (high, low) = (position.saturating_add(1), position);
        let params = find.with(&[&high, &low, &1_i64, &1_i64]);
        let found = store.ask(query!("operate/events"), &params).await?;
        let items = found.iter().map(summary).collect();
        return Ok(Page { items, next: None });
    }
    let (low, high) = window(store, filter).await?;
    let high = before.map_or(high, |before| before.min(high));
    let count = rows(limit.clamp(1, PAGE_MAX));
    let params = find.with(&[&high, &low, &LOOK, &count]);
    let found = store.ask(query!("operate/events"), &params).await?;
    let items: Vec<Summary> = found.iter().map(summary).collect();
    let next = if rows(items.len()) == count {
        items.last().map(|it| it.position)
    } else {
        let params: [&dyn Param; 3] = [&high, &low, &(LOOK - 1)];
        let ends = store.ask(query!("operate/looked_until"), &params).await?;
        ends.first().map(|row| row.get(0))
    };
    Ok(Page { items, next })
}

/// Counts what a filter fits; without an id or an age it looks at every event there is.
///
/// # Errors
/// Fails when the store cannot be read, or does not answer in time.
pub async fn count(store: &Postgres, actor: &Actor, filter: &Filter) -> Result<u64, OperateError> {
    let Some(find) = Find::of(actor, filter) else {
        return Ok(0);
    };
    let (low, high) = match place_of(store, actor, filter).await? {
        Some(position) => (position, position.saturating_add(1)),
        None => window(store, filter).await?,
    };
    let params = find.with(&[&high, &low]);
    let found = store.ask(query!("operate/count_events"), &params).await?;
    Ok(found
        .first()
        .map_or(0, |row| row.get::<_, i64>(0))
        .unsigned_abs())
}

/// Finds an event by its own id, wherever it is: it may look at every event there is.
///
/// # Errors
/// Fails when the store cannot be read.
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
        let found = store.ask(query!("operate/find_event"), &params).await?;
        if let Some(row) = found.first() {
            return outbox::shown(row, store.keyring()).map(Some);
        }
    }
    Ok(None)
}

/// Finds an event by its own id among those nearest to the moment that this tells of: where it is, but
/// for an id that was made elsewhere or long before, or by a clock that is far off.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn find_near(
    store: &Postgres,
    actor: &Actor,
    id: EventId,
) -> Result<Option<Arc<OutboxEvent>>, StoreError> {
    let (text, tenant) = (id.to_string(), actor.tenant());
    let middle = id_at(store, Moment(moment_of(id))).await?;
    let params: [&dyn Param; 4] = [&text, &middle, &LOOK_NEAR, &tenant];
    let sql = query!("operate/find_event_near");
    let found = store.ask(sql, &params).await?;
    let shown = |row| outbox::shown(row, store.keyring());
    found.first().map(shown).transpose()
}

/// The event at a position.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn at(
    store: &Postgres,
    actor: &Actor,
    position: i64,
) -> Result<Option<Arc<OutboxEvent>>, StoreError> {
    let params: [&dyn Param; 2] = [&position, &actor.tenant()];
    let found = store.ask(query!("operate/event"), &params).await?;
    let shown = |row| outbox::shown(row, store.keyring());
    found.first().map(shown).transpose()
}

/// Where the event at a position stands at every destination that a relay has opened.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn trace(store: &Postgres, position: i64) -> Result<Vec<Trace>, StoreError> {
    let mut found = traces(store, &[position]).await?;
    Ok(found.remove(&position).unwrap_or_default())
}

/// The same of several events, by position: two statements, however many there are.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn traces(
    store: &Postgres,
    positions: &[i64],
) -> Result<HashMap<i64, Vec<Trace>>, StoreError> {
    let positions = positions.to_vec();
    let found = store.ask(query!("operate/trace"), &[&positions]).await?;
    let at: Vec<(i64, &str)> = found.iter().map(|row| (row.get(11), row.get(0))).collect();
    let mut logs: HashMap<(i64, String), Vec<Attempt>> = HashMap::new();
    for (part, attempt) in attempts(store, &at).await? {
        let log = logs.entry((attempt.position, part)).or_default();
        log.push(attempt);
    }
    let mut traces: HashMap<i64, Vec<Trace>> = HashMap::new();
    for row in &found {
        let of = (row.get(11), row.get(0));
        let log = logs.remove(&of).unwrap_or_default();
        let (position, part) = of;
        traces
            .entry(position)
            .or_default()
            .push(traced(row, store.keyring(), part, log));
    }
    Ok(traces)
}

fn traced(row: &Row, keyring: &Keyring, part: String, log: Vec<Attempt>) -> Trace {
    let state: Option<&str> = row.get(2);
    let standing = match state.and_then(Standing::parse) {
        Some(standing) => standing,
        None if !log.is_empty() => Standing::Delivered,
        None if row.get::<_, bool>(9) => Standing::Passed,
        None => Standing::Unread,
    };
    let waits = matches!(standing, Standing::Scheduled | Standing::Retrying);
    let moment = |column| row.get::<_, Option<Moment>>(column).map(|it| it.0);
    Trace {
        part,
        standing,
        attempts: row.get::<_, Option<i32>>(3).unwrap_or(0).unsigned_abs(),
        next_at: moment(4).filter(|_| waits),
        last_error: row.get(6),
        reason: row.get(8),
        behind: row.get(10),
        changed_at: moment(7),
        edited: row.get::<_, Option<String>>(13).and_then(|payload| {
            let id = row.get::<_, &str>(12).parse().ok()?;
            let headers = row.get::<_, Option<&str>>(14).unwrap_or("{}");
            // What does not decrypt here is shown as its column has it.
            let raw = || Payload::Json(serde_json::Value::String(payload.clone()).to_string());
            let read = unseal(id, headers, payload.clone(), keyring);
            Some(read.map_or_else(|_| raw(), |(_, payload)| payload))
        }),
        log,
    }
}

/// Where the one event is that a filter asks for by its id, if it is near the moment of that.
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

/// The positions between which the events of a window lie.
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
    // Outside of this the database has no such moment.
    const YEARS: i64 = 4_000 * 365 * 24 * 3_600 * 1_000;
    let moment = Moment(Timestamp::from_millis(
        moment.0.as_millis().clamp(-YEARS / 10, YEARS),
    ));
    let found = store.ask(query!("operate/id_at"), &[&moment]).await?;
    Ok(found.first().map_or(0, |row| row.get(0)))
}

/// The moment that an id tells of: its first 48 bits are milliseconds.
fn moment_of(id: EventId) -> Timestamp {
    let text = id.to_string();
    let digits: String = text.chars().filter(|it| *it != '-').take(12).collect();
    Timestamp::from_millis(i64::from_str_radix(&digits, 16).unwrap_or(0))
}

pub(super) fn millis(duration: Duration) -> i64 {
    crate::idempotency::millis(duration)
}

fn summary(row: &Row) -> Summary {
    Summary {
        position: row.get(0),
        id: row.get(1),
        kind: row.get(2),
        tenant: row.get(3),
        aggregate_type: row.get(4),
        aggregate_id: row.get(5),
        sequence: row.get(6),
        created_at: row.get::<_, Moment>(7).0,
        available_at: row.get::<_, Option<Moment>>(8).map(|it| it.0),
        payload_bytes: row.get::<_, i64>(9).unsigned_abs(),
    }
}
