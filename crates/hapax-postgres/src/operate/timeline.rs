//! The timeline of one request: its key, its transaction, its events, their way to every
//! destination, and the message or the saga that came of them in this database.
//!
//! Nothing is written for it. Every event of a request says its key's short hash in a header, and
//! the transaction that wrote it in its row; the row of a key says which transaction wrote it last.
//! So the events of a key are those of about its time that say its hash, and those of its own
//! transaction among them are told apart from those that came later under the same key: of another
//! phase, or of a saga that it began. One transaction may commit many requests, each under its key.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use hapax::{Timestamp, event::EventId, key::Tenant, outbox::OutboxEvent};

use super::{
    Actor, OperateError, PAGE_MAX, destination_of, destinations,
    events::{self, SKEW, Standing, Trace},
    inbox::{self, Message},
    keys::{self, Keys},
    sagas::{self, Look},
};
use crate::{
    outbox::{self, rows},
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// What is known of one request.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Its key; `None` when it had none, or the key is gone.
    pub key: Option<keys::Record>,
    /// Its events, in order.
    pub events: Vec<Emitted>,
    /// The sagas that it began.
    pub sagas: Vec<Look>,
    /// Whether all that is there was found: a search that would have to look at too many events is
    /// ended, and then there may be more.
    pub is_whole: bool,
}

/// An event and what became of it.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// The event.
    pub event: Arc<OutboxEvent>,
    /// The number of the transaction that wrote it.
    pub transaction: u64,
    /// Whether that is the one that stored the key's answer: the commit that decided about both.
    pub is_of_answer: bool,
    /// Its way to every destination.
    pub traces: Vec<Trace>,
    /// Who took it in this database.
    pub taken: Vec<Message>,
}

/// The timeline of the request that emitted an event, wherever that is.
///
/// # Errors
/// `NotFound` when there is no such event, or it is another tenant's.
pub async fn of_event(
    store: &Postgres,
    actor: &Actor,
    id: EventId,
) -> Result<Timeline, OperateError> {
    let event = events::find(store, actor, id).await?;
    let event = event.ok_or_else(|| OperateError::not_found(format!("event {id}")))?;
    of_found(store, actor, event).await
}

/// The same of an event that was found for the actor.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn of_found(
    store: &Postgres,
    actor: &Actor,
    event: Arc<OutboxEvent>,
) -> Result<Timeline, OperateError> {
    let asked = [&event.position as &dyn Param];
    let wrote = store.ask(query!("operate/transaction_of"), &asked).await?;
    let wrote: i64 = wrote.first().map_or(0, |row| row.get(0));
    let hash = event.event.headers.get(KEY_HASH).cloned();
    let key = match &hash {
        Some(hash) => key_of(store, actor, &event, hash, wrote).await?,
        None => None,
    };
    let mut timeline = if let Some(key) = key {
        of_record(store, actor, key).await?
    } else {
        let at = event.event.created_at;
        let seek = Seek {
            hash,
            tenant: event.event.tenant.clone(),
            transaction: wrote & LOW,
            from: at,
            until: at,
        };
        look(store, actor, &seek, None).await?
    };
    let has_it = |it: &Emitted| it.event.position == event.position;
    if !timeline.events.iter().any(has_it) {
        // It lies further off than was looked.
        timeline.is_whole = false;
        let found = vec![(event, wrote)];
        let more = ways(store, actor, found, timeline.key.as_ref()).await?;
        timeline.events.extend(more);
    }
    Ok(timeline)
}

/// The timeline of a key. Operation and tenant may be left out as long as only one key fits.
///
/// # Errors
/// `NotFound` when there is no such key, or it is another tenant's; `Invalid` when several fit.
pub async fn of_key(
    store: &Postgres,
    actor: &Actor,
    tenant: Option<&str>,
    operation: Option<&str>,
    key: &str,
) -> Result<Timeline, OperateError> {
    let key = keys::one(store, actor, tenant, operation, key).await?;
    of_record(store, actor, key).await
}

/// The header in which an event says the short hash of its key.
const KEY_HASH: &str = "idempotency_key_hash";
/// The half of a transaction's number that a row's `xmin` has.
const LOW: i64 = 0xffff_ffff;
/// How far apart a key and its events are looked for, one after the other: clocks may differ.
const AROUND: [Duration; 2] = [Duration::from_secs(2), SKEW];
/// Events that one look goes through: some tens of milliseconds.
const LOOK: i64 = 20_000;
/// Events that one timeline tells of.
const EVENTS: usize = 100;
/// Sagas that one look goes through.
const LOOK_SAGAS: i64 = 2_000;
/// Sagas that one timeline tells of.
const SAGAS: i64 = 20;

/// What the events and sagas of a request are looked for by.
struct Seek {
    hash: Option<String>,
    /// Whose they are: another tenant may use the same key at the same time.
    tenant: Option<Tenant>,
    transaction: i64,
    from: Timestamp,
    until: Timestamp,
}

async fn of_record(
    store: &Postgres,
    actor: &Actor,
    key: keys::Record,
) -> Result<Timeline, OperateError> {
    let seek = Seek {
        hash: Some(key.summary.short_hash.clone()),
        tenant: Tenant::new(key.summary.tenant.as_str()).ok(),
        transaction: key.xmin,
        from: key.summary.created_at,
        until: key.summary.completed_at.unwrap_or(key.at),
    };
    look(store, actor, &seek, Some(key)).await
}

async fn look(
    store: &Postgres,
    actor: &Actor,
    seek: &Seek,
    key: Option<keys::Record>,
) -> Result<Timeline, OperateError> {
    let sagas = sagas_of(store, actor, seek).await?;
    // What a saga emits says the key that it began under.
    let ends = sagas
        .iter()
        .map(|look| look.saga.ended_at.unwrap_or(look.at));
    let until = ends.max().map_or(seek.until, |end| end.max(seek.until));
    let (found, is_whole) = search(store, actor, seek, until).await?;
    let events = ways(store, actor, found, key.as_ref()).await?;
    Ok(Timeline {
        key,
        events,
        sagas,
        is_whole,
    })
}

/// The key of an event: of those that have its hash, the one that its transaction wrote, or else
/// the one that was claimed last.
async fn key_of(
    store: &Postgres,
    actor: &Actor,
    event: &OutboxEvent,
    hash: &str,
    wrote: i64,
) -> Result<Option<keys::Record>, OperateError> {
    if hash.len() != HASH_LETTERS {
        // The emitter says something of its own under that name.
        return Ok(None);
    }
    let at = event.event.created_at;
    let around = AROUND.map(|around| (Some(before(at, around)), at.after(around)));
    // A saga's event, or one of a late phase, may come long after its key.
    let far = (None, at.after(SKEW));
    let mut found = Vec::new();
    for (since, until) in around.into_iter().chain([far]) {
        let asked = Keys {
            key: Some(format!("#{hash}")),
            tenant: event.event.tenant.clone(),
            since,
            until: Some(until),
            ..Keys::default()
        };
        found = keys::list(store, actor, &asked, None, CANDIDATES)
            .await?
            .items;
        if !found.is_empty() {
            break;
        }
    }
    let mut last = None;
    for it in found {
        let (tenant, operation) = (Some(it.tenant.as_str()), Some(it.operation.as_str()));
        let record = match keys::one(store, actor, tenant, operation, &it.key).await {
            Ok(record) => record,
            // It was purged meanwhile.
            Err(OperateError::NotFound { .. }) => continue,
            Err(error) => return Err(error),
        };
        if record.xmin == wrote & LOW {
            return Ok(Some(record));
        }
        last = last.or(Some(record));
    }
    Ok(last)
}

/// Letters of a short hash.
const HASH_LETTERS: usize = 16;
/// Keys of one hash that are looked at: one for each operation and tenant that a client uses it for.
const CANDIDATES: usize = 10;

/// The events with the transactions that wrote them, and whether these are all.
async fn search(
    store: &Postgres,
    actor: &Actor,
    seek: &Seek,
    until: Timestamp,
) -> Result<(Vec<(Arc<OutboxEvent>, i64)>, bool), OperateError> {
    let mut found = (Vec::new(), true);
    for around in AROUND {
        let low = events::id_at(store, Moment(before(seek.from, around))).await?;
        let high = events::id_at(store, Moment(until.after(around))).await?;
        let (tenant, count) = (actor.tenant(), rows(EVENTS + 1));
        let params: [&dyn Param; 7] = [
            &low,
            &high,
            &LOOK,
            &seek.hash,
            &seek.transaction,
            &tenant,
            &count,
        ];
        let looked = store.ask(query!("operate/events_of"), &params).await?;
        let is_cut = looked
            .first()
            .is_some_and(|row| row.get::<_, i64>(12) >= LOOK);
        let mut fits = Vec::new();
        for row in looked
            .iter()
            .filter(|row| row.get::<_, Option<i64>>(0).is_some())
        {
            let (event, wrote) = (outbox::shown(row, store.keyring())?, row.get::<_, i64>(11));
            // A hash that stands somewhere else in the headers is not said.
            let fit = match event.event.headers.get(KEY_HASH) {
                Some(says) => seek.hash.as_ref() == Some(says) && event.event.tenant == seek.tenant,
                None => wrote & LOW == seek.transaction,
            };
            if fit {
                fits.push((event, wrote));
            }
        }
        let is_whole = !is_cut && fits.len() <= EVENTS;
        fits.truncate(EVENTS);
        let is_end = !fits.is_empty() || !is_whole;
        found = (fits, is_whole);
        if is_end {
            break;
        }
    }
    Ok(found)
}

/// Where events went, and who took them here.
async fn ways(
    store: &Postgres,
    actor: &Actor,
    found: Vec<(Arc<OutboxEvent>, i64)>,
    key: Option<&keys::Record>,
) -> Result<Vec<Emitted>, OperateError> {
    let own = own_destinations(store, actor).await?;
    let ids = found.iter().map(|(event, _)| event.event.id.to_string());
    let mut taken = inbox::taken(store, ids.collect(), None, None).await?;
    let answered = key.filter(|key| key.summary.completed_at.is_some());
    let positions: Vec<i64> = found.iter().map(|(event, _)| event.position).collect();
    let mut ways = events::traces(store, &positions).await?;
    let mut all = Vec::with_capacity(found.len());
    for (event, wrote) in found {
        let mut traces = ways.remove(&event.position).unwrap_or_default();
        if let Some(own) = &own {
            hide(&mut traces, own);
        }
        let id = event.event.id.to_string();
        let (its, others) = taken.into_iter().partition(|it| it.message_id == id);
        taken = others;
        all.push(Emitted {
            event,
            transaction: wrote.unsigned_abs(),
            is_of_answer: answered.is_some_and(|key| key.xmin == wrote & LOW),
            traces,
            taken: its,
        });
    }
    Ok(all)
}

/// The destinations that take an actor's events alone; `None` when it may see them all.
async fn own_destinations(
    store: &Postgres,
    actor: &Actor,
) -> Result<Option<BTreeSet<String>>, OperateError> {
    if actor.tenant.is_none() {
        return Ok(None);
    }
    let declared = destinations::list(store, actor, None, PAGE_MAX).await?;
    Ok(Some(declared.items.into_iter().map(|it| it.name).collect()))
}

/// Where others' events go is not a tenant's business; where its own go is, and what a far side
/// that is not its own has answered is that one's.
fn hide(traces: &mut Vec<Trace>, own: &BTreeSet<String>) {
    traces.retain(|trace| !matches!(trace.standing, Standing::Unread | Standing::Passed));
    for trace in traces {
        if !own.contains(destination_of(&trace.part)) {
            for attempt in &mut trace.log {
                attempt.response_head = Bytes::new();
            }
        }
    }
}

/// The sagas that a request began.
async fn sagas_of(store: &Postgres, actor: &Actor, seek: &Seek) -> Result<Vec<Look>, OperateError> {
    let Some(hash) = &seek.hash else {
        return Ok(Vec::new());
    };
    let [near, _] = AROUND;
    let (from, until) = (
        Moment(before(seek.from, near)),
        Moment(seek.until.after(near)),
    );
    let tenant = actor.tenant();
    let params: [&dyn Param; 6] = [&from, &until, hash, &tenant, &LOOK_SAGAS, &SAGAS];
    let found = store.ask(query!("operate/sagas_of"), &params).await?;
    let mut begun = Vec::with_capacity(found.len());
    for row in &found {
        match sagas::get(store, actor, row.get(0)).await {
            Ok(look) if is_of(seek, &look) => begun.push(look),
            Ok(_) | Err(OperateError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(begun)
}

/// Whether a saga says the hash that is looked for, and is of the same tenant, or of none.
fn is_of(seek: &Seek, look: &Look) -> bool {
    let tenant = &look.saga.tenant;
    look.saga.headers.get(KEY_HASH) == seek.hash.as_ref()
        && (tenant.is_none() || *tenant == seek.tenant)
}

fn before(at: Timestamp, wait: Duration) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_sub(events::millis(wait)))
}
