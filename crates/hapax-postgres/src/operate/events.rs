//! Events looked at: listed by a filter, found by their id, and where each stands at every
//! destination.
//!
//! No index is kept for any of it, for every producer would pay: ids rise with time, and a moment
//! is found among them by halves. Clocks that differ are allowed [`SKEW`]; a list of a window may
//! leave out events of a clock that was further off, and finding one by its id does not.

use std::{sync::Arc, time::Duration};

use hapax::{
    Timestamp,
    delivery::Attempt,
    event::EventId,
    outbox::OutboxEvent,
    store::{Deliveries as _, StoreError},
};
use tokio_postgres::Row;

use super::{Actor, Filter, OperateError, PAGE_MAX, Page, find::Find};
use crate::{
    outbox::{self, rows},
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// How far the clocks of emitters may differ for a window of time to show all of theirs.
pub const SKEW: Duration = Duration::from_mins(5);
/// Events that one page looks at: some tens of milliseconds.
const LOOK: i64 = 20_000;
/// How far around its moment an event is looked for by its id, one after the other.
const AROUND: [Duration; 3] = [
    Duration::from_secs(2),
    SKEW,
    Duration::from_hours(24 * 365 * 1000),
];

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
    if filter.event_id.is_some() {
        return one(store, actor, filter, before).await;
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

/// Counts what a filter fits; it may look at every event there is.
///
/// # Errors
/// Fails when the store cannot be read, or does not answer in time.
pub async fn count(store: &Postgres, actor: &Actor, filter: &Filter) -> Result<u64, OperateError> {
    let Some(find) = Find::of(actor, filter) else {
        return Ok(0);
    };
    let (low, high) = (i64::MIN, i64::MAX);
    let params = find.with(&[&high, &low]);
    let found = store.ask(query!("operate/count_events"), &params).await?;
    Ok(found
        .first()
        .map_or(0, |row| row.get::<_, i64>(0))
        .unsigned_abs())
}

/// Finds an event by its own id.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn find(
    store: &Postgres,
    actor: &Actor,
    id: EventId,
) -> Result<Option<Arc<OutboxEvent>>, StoreError> {
    let (text, tenant) = (id.to_string(), actor.tenant());
    let moment = moment_of(&text);
    for around in AROUND {
        let since = Moment(Timestamp::from_millis(moment.as_millis() - millis(around)));
        let until = Moment(moment.after(around));
        let (low, high) = if around > SKEW {
            (i64::MIN, i64::MAX)
        } else {
            (id_at(store, since).await?, id_at(store, until).await?)
        };
        let params: [&dyn Param; 4] = [&text, &low, &high, &tenant];
        let found = store.ask(query!("operate/find_event"), &params).await?;
        if let Some(row) = found.first() {
            return outbox::event(row).map(Some);
        }
    }
    Ok(None)
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
    found.first().map(outbox::event).transpose()
}

/// Where the event at a position stands at every destination that a relay has opened.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn trace(store: &Postgres, position: i64) -> Result<Vec<Trace>, StoreError> {
    let found = store.ask(query!("operate/trace"), &[&position]).await?;
    let mut traces = Vec::with_capacity(found.len());
    for row in &found {
        let part: String = row.get(0);
        let log = store.attempts(&part, position).await?;
        traces.push(traced(row, part, log));
    }
    Ok(traces)
}

fn traced(row: &Row, part: String, log: Vec<Attempt>) -> Trace {
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
        log,
    }
}

/// A list of the one event that has this id, if the rest of the filter fits it.
async fn one(
    store: &Postgres,
    actor: &Actor,
    filter: &Filter,
    before: Option<i64>,
) -> Result<Page<Summary, i64>, OperateError> {
    let mut items = Vec::new();
    let find = Find::of(actor, filter);
    if let (Some(id), Some(find)) = (filter.event_id, find)
        && let Some(event) = self::find(store, actor, id).await?
        && before.is_none_or(|before| event.position < before)
    {
        let (high, low) = (event.position.saturating_add(1), event.position);
        let params = find.with(&[&high, &low, &1_i64, &1_i64]);
        let found = store.ask(query!("operate/events"), &params).await?;
        items.extend(found.iter().map(summary));
    }
    Ok(Page { items, next: None })
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

async fn id_at(store: &Postgres, moment: Moment) -> Result<i64, StoreError> {
    // Outside of this the database has no such moment.
    const YEARS: i64 = 4_000 * 365 * 24 * 3_600 * 1_000;
    let moment = Moment(Timestamp::from_millis(
        moment.0.as_millis().clamp(-YEARS / 10, YEARS),
    ));
    let found = store.ask(query!("operate/id_at"), &[&moment]).await?;
    Ok(found.first().map_or(0, |row| row.get(0)))
}

/// The moment that an id tells of: its first 48 bits are milliseconds.
fn moment_of(id: &str) -> Timestamp {
    let digits: String = id.chars().filter(|it| *it != '-').take(12).collect();
    Timestamp::from_millis(i64::from_str_radix(&digits, 16).unwrap_or(0))
}

fn millis(duration: Duration) -> i64 {
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
