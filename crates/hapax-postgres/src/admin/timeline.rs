//! The timeline of one request: its key, transaction and events, their deliveries to every
//! destination, and the inbox messages and sagas that resulted from them in this database.
//!
//! Nothing is stored for timelines. Every event of a request has the short hash of its key in a
//! header, and its row has the id of the transaction that wrote it. The row of a key has the id of
//! the transaction that last wrote it. The events of a key are therefore those of about its time
//! that have its hash. Among them, those of the key's last transaction are distinguished from those
//! that were written otherwise under the same key: by another phase, or by a saga that the request
//! started. One transaction may commit several requests, each under its own key.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use hapax::{Timestamp, event::EventId, key::Tenant, outbox::OutboxEvent};

use super::{
    Actor, AdminError, PAGE_MAX, destination_of, destinations,
    events::{self, DeliveryStatus, SKEW, Trace},
    inbox::{self, Message},
    keys::{self, Keys},
    sagas::{self, Look},
};
use crate::{
    outbox,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

/// What is known about one request.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The key; `None` if the request had none, or if it was purged.
    pub key: Option<keys::Record>,
    /// The events of the request, in order.
    pub events: Vec<Emitted>,
    /// The sagas that the request started.
    pub sagas: Vec<Look>,
    /// Whether the timeline is complete. If not, the search stopped before it had read all events
    /// that might belong to the request.
    pub is_whole: bool,
}

/// An event and its deliveries.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// The event.
    pub event: Arc<OutboxEvent>,
    /// The id of the transaction that wrote it.
    pub transaction: u64,
    /// Whether the same transaction stored the response of the key.
    pub is_of_answer: bool,
    /// The status at every destination.
    pub traces: Vec<Trace>,
    /// The consumers of this database that have accepted it.
    pub taken: Vec<Message>,
}

/// The timeline of the request that emitted an event. Finding the event may read all events.
///
/// # Errors
/// `NotFound` if the event does not exist or belongs to another tenant.
pub async fn of_event(
    store: &Postgres,
    actor: &Actor,
    id: EventId,
) -> Result<Timeline, AdminError> {
    let event = events::find(store, actor, id).await?;
    let event = event.ok_or_else(|| AdminError::not_found(format!("event {id}")))?;
    of_found(store, actor, event).await
}

/// The timeline of the request that emitted an event, for an event that the actor may see.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn of_found(
    store: &Postgres,
    actor: &Actor,
    event: Arc<OutboxEvent>,
) -> Result<Timeline, AdminError> {
    let asked = [&event.position as &dyn Param];
    let wrote = store.ask(query!("admin/transaction_of"), &asked).await?;
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
        // The event is outside of the range that was searched.
        timeline.is_whole = false;
        let found = vec![(event, wrote)];
        let more = ways(store, actor, found, timeline.key.as_ref()).await?;
        timeline.events.extend(more);
    }
    Ok(timeline)
}

/// The timeline of a key. Operation and tenant may be omitted if only one key matches.
///
/// # Errors
/// `NotFound` if the key does not exist or belongs to another tenant; `Invalid` if several keys
/// match.
pub async fn of_key(
    store: &Postgres,
    actor: &Actor,
    tenant: Option<&str>,
    operation: Option<&str>,
    key: &str,
) -> Result<Timeline, AdminError> {
    let key = keys::one(store, actor, tenant, operation, key).await?;
    of_record(store, actor, key).await
}

/// The header of an event that contains the short hash of its key.
const KEY_HASH: &str = "idempotency_key_hash";
/// Mask for the half of a transaction's id that a row's `xmin` contains.
const LOW: i64 = 0xffff_ffff;
/// Maximum time between a key and its events: first a short one, then a long one, because clocks
/// may differ.
const AROUND: [Duration; 2] = [Duration::from_secs(2), SKEW];
/// Events that one query reads. This takes some tens of milliseconds.
const LOOK: i64 = 20_000;
/// Maximum number of events in a timeline.
const EVENTS: usize = 100;
/// Sagas that one query reads.
const LOOK_SAGAS: i64 = 2_000;
/// Maximum number of sagas in a timeline.
const SAGAS: i64 = 20;

/// The criteria by which the events and sagas of a request are found.
struct Seek {
    hash: Option<String>,
    /// The tenant, because another one may use the same key at the same time.
    tenant: Option<Tenant>,
    transaction: i64,
    from: Timestamp,
    until: Timestamp,
}

async fn of_record(
    store: &Postgres,
    actor: &Actor,
    key: keys::Record,
) -> Result<Timeline, AdminError> {
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
) -> Result<Timeline, AdminError> {
    let sagas = sagas_of(store, actor, seek).await?;
    // The events of a saga have the hash of the key under which the saga was started.
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

/// The key of an event: among the keys with its hash, the one that was written by the same
/// transaction, or else the one that was claimed last.
async fn key_of(
    store: &Postgres,
    actor: &Actor,
    event: &OutboxEvent,
    hash: &str,
    wrote: i64,
) -> Result<Option<keys::Record>, AdminError> {
    if hash.len() != HASH_LETTERS {
        // The service uses a header of this name for another purpose.
        return Ok(None);
    }
    let at = event.event.created_at;
    let around = AROUND.map(|around| (Some(before(at, around)), at.after(around)));
    // An event of a saga or of a late phase may be written long after the key was claimed.
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
            // The key was purged in the meantime.
            Err(AdminError::NotFound { .. }) => continue,
            Err(error) => return Err(error),
        };
        if record.xmin == wrote & LOW {
            return Ok(Some(record));
        }
        last = last.or(Some(record));
    }
    Ok(last)
}

/// Length of a short hash.
const HASH_LETTERS: usize = 16;
/// Maximum number of keys with the same hash that are read. A client may use a key for several
/// operations and tenants.
const CANDIDATES: usize = 10;

/// The events with the ids of the transactions that wrote them, and whether these are all.
async fn search(
    store: &Postgres,
    actor: &Actor,
    seek: &Seek,
    until: Timestamp,
) -> Result<(Vec<(Arc<OutboxEvent>, i64)>, bool), AdminError> {
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
        let looked = store.ask(query!("admin/events_of"), &params).await?;
        let is_cut = looked
            .first()
            .is_some_and(|row| row.get::<_, i64>("looked") >= LOOK);
        let mut fits = Vec::new();
        for row in looked
            .iter()
            .filter(|row| row.get::<_, Option<i64>>(0).is_some())
        {
            let (event, wrote) = (
                outbox::shown(row, store.keyring())?,
                row.get::<_, i64>("transaction"),
            );
            // The query also finds the hash in other headers, where it does not count.
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

/// Adds to events their status at every destination and the consumers that have accepted them.
async fn ways(
    store: &Postgres,
    actor: &Actor,
    found: Vec<(Arc<OutboxEvent>, i64)>,
    key: Option<&keys::Record>,
) -> Result<Vec<Emitted>, AdminError> {
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

/// The destinations that receive only the actor's events; `None` if the actor may see all of them.
async fn own_destinations(
    store: &Postgres,
    actor: &Actor,
) -> Result<Option<BTreeSet<String>>, AdminError> {
    if actor.tenant.is_none() {
        return Ok(None);
    }
    let declared = destinations::list(store, actor, None, PAGE_MAX).await?;
    Ok(Some(declared.items.into_iter().map(|it| it.name).collect()))
}

/// Removes what an actor of a tenant may not see: destinations that have made no attempt at the
/// event, and the responses of receivers that do not belong to the tenant.
fn hide(traces: &mut Vec<Trace>, own: &BTreeSet<String>) {
    traces.retain(|trace| {
        !matches!(
            trace.status,
            DeliveryStatus::Unread | DeliveryStatus::Passed
        )
    });
    for trace in traces {
        if !own.contains(destination_of(&trace.partition)) {
            for attempt in &mut trace.log {
                attempt.response_head = Bytes::new();
            }
        }
    }
}

/// The sagas that a request started.
async fn sagas_of(store: &Postgres, actor: &Actor, seek: &Seek) -> Result<Vec<Look>, AdminError> {
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
    let found = store.ask(query!("admin/sagas_of"), &params).await?;
    let mut begun = Vec::with_capacity(found.len());
    for row in &found {
        match sagas::get(store, actor, row.get(0)).await {
            Ok(look) if is_of(seek, &look) => begun.push(look),
            Ok(_) | Err(AdminError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(begun)
}

/// Whether a saga has the requested hash and belongs to the same tenant, or to none.
fn is_of(seek: &Seek, look: &Look) -> bool {
    let tenant = &look.saga.tenant;
    look.saga.headers.get(KEY_HASH) == seek.hash.as_ref()
        && (tenant.is_none() || *tenant == seek.tenant)
}

fn before(at: Timestamp, wait: Duration) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_sub(events::millis(wait)))
}
