//! Assembly of timelines from what a store reads.
//!
//! Nothing is stored for timelines. Every event of a request has the short hash of its key in a
//! header, and its row has the number of the transaction that wrote it. The row of a key has the
//! number of the transaction that last wrote it. The events of a key are therefore those of about
//! its time that have its hash. Among them, those of the key's last transaction are distinguished
//! from those that were written otherwise under the same key: by another phase, or by a saga that
//! the request started. One transaction may commit several requests, each under its own key.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{
    Actor, AdminError, Emitted, FoundKey, KeyFilter, PAGE_MAX, RequestSeek, SagaLook, Timeline,
    TimelineAdmin, TimelineSource, Trace,
};
use crate::{clock::Timestamp, key::Tenant, outbox::OutboxEvent};

/// Maximum time between a key and its events: first a short one, then a long one, because clocks
/// may differ.
const AROUND: [Duration; 2] = [Duration::from_secs(2), RequestSeek::SKEW];
/// Length of a short hash.
const HASH_LETTERS: usize = 16;
/// Maximum number of keys with the same hash that are read. A client may use a key for several
/// operations and tenants.
const CANDIDATES: usize = 10;

#[async_trait]
impl<S: TimelineSource> TimelineAdmin for S {
    async fn timeline_of_event(
        &self,
        actor: &Actor,
        event: Arc<OutboxEvent>,
    ) -> Result<Timeline, AdminError> {
        let wrote = self.transaction_of(event.position).await?;
        let hash = event.event.headers.get(RequestSeek::KEY_HASH).cloned();
        let key = match &hash {
            Some(hash) => key_of(self, actor, &event, hash, wrote).await?,
            None => None,
        };
        let (mut timeline, key) = if let Some(key) = key {
            of_record(self, actor, key).await?
        } else {
            let at = event.event.created_at;
            let seek = RequestSeek {
                hash,
                tenant: event.event.tenant.clone(),
                transaction: self.in_key(wrote),
                others: Vec::new(),
                from: at,
                until: at,
            };
            (look(self, actor, &seek, None).await?, None)
        };
        let has_it = |it: &Emitted| it.event.position == event.position;
        if !timeline.events.iter().any(has_it) {
            // The event is outside of the range that was searched.
            timeline.is_whole = false;
            let found = vec![(event, wrote)];
            let more = emitted(self, actor, found, key.as_ref()).await?;
            timeline.events.extend(more);
        }
        Ok(timeline)
    }

    async fn timeline_of_key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: Option<&str>,
        key: &str,
    ) -> Result<Timeline, AdminError> {
        let key = self.found_key(actor, tenant, operation, key).await?;
        Ok(of_record(self, actor, key).await?.0)
    }
}

async fn of_record<S: TimelineSource + ?Sized>(
    store: &S,
    actor: &Actor,
    key: FoundKey,
) -> Result<(Timeline, Option<FoundKey>), AdminError> {
    let summary = &key.record.summary;
    let seek = RequestSeek {
        hash: Some(summary.short_hash.clone()),
        tenant: Tenant::new(summary.tenant.as_str()).ok(),
        transaction: key.transaction,
        others: namesakes(store, actor, &key).await?,
        from: summary.created_at,
        until: summary.completed_at.unwrap_or(key.at),
    };
    let timeline = look(store, actor, &seek, Some(&key)).await?;
    Ok((timeline, Some(key)))
}

/// The transactions that last wrote other keys of the same name and tenant: a client may use a key
/// for several operations, and their events have the same hash.
async fn namesakes<S: TimelineSource + ?Sized>(
    store: &S,
    actor: &Actor,
    key: &FoundKey,
) -> Result<Vec<i64>, AdminError> {
    let own = &key.record.summary;
    let asked = KeyFilter {
        key: Some(own.key.clone()),
        tenant: Tenant::new(own.tenant.as_str()).ok(),
        ..KeyFilter::default()
    };
    let mut others = Vec::new();
    for it in store.keys(actor, &asked, None, CANDIDATES).await?.items {
        let is_same = it.key == own.key && it.tenant == own.tenant;
        if !is_same || it.operation == own.operation {
            continue;
        }
        let (tenant, operation) = (Some(it.tenant.as_str()), Some(it.operation.as_str()));
        match store.found_key(actor, tenant, operation, &it.key).await {
            // One transaction may have written both.
            Ok(other) if other.transaction != key.transaction => others.push(other.transaction),
            Ok(_) | Err(AdminError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(others)
}

async fn look<S: TimelineSource + ?Sized>(
    store: &S,
    actor: &Actor,
    seek: &RequestSeek,
    key: Option<&FoundKey>,
) -> Result<Timeline, AdminError> {
    let sagas = sagas_of(store, actor, seek).await?;
    // The events of a saga have the hash of the key under which the saga was started.
    let ends = sagas
        .iter()
        .map(|look| look.saga.ended_at.unwrap_or(look.at));
    let until = ends.max().map_or(seek.until, |end| end.max(seek.until));
    let (found, is_whole) = search(store, actor, seek, until).await?;
    Ok(Timeline {
        events: emitted(store, actor, found, key).await?,
        key: key.map(|key| key.record.clone()),
        sagas,
        is_whole,
    })
}

/// The key of an event: among the keys with its hash, the one that was written by the same
/// transaction, or else the one that was claimed last.
async fn key_of<S: TimelineSource + ?Sized>(
    store: &S,
    actor: &Actor,
    event: &OutboxEvent,
    hash: &str,
    wrote: i64,
) -> Result<Option<FoundKey>, AdminError> {
    if hash.len() != HASH_LETTERS {
        // The service uses a header of this name for another purpose.
        return Ok(None);
    }
    let at = event.event.created_at;
    let around = AROUND.map(|around| (Some(before(at, around)), at.after(around)));
    // An event of a saga or of a late phase may be written long after the key was claimed.
    let far = (None, at.after(RequestSeek::SKEW));
    let mut found = Vec::new();
    for (since, until) in around.into_iter().chain([far]) {
        let asked = KeyFilter {
            key: Some(format!("#{hash}")),
            tenant: event.event.tenant.clone(),
            since,
            until: Some(until),
            ..KeyFilter::default()
        };
        found = store.keys(actor, &asked, None, CANDIDATES).await?.items;
        if !found.is_empty() {
            break;
        }
    }
    let mut last = None;
    for it in found {
        let (tenant, operation) = (Some(it.tenant.as_str()), Some(it.operation.as_str()));
        let record = match store.found_key(actor, tenant, operation, &it.key).await {
            Ok(record) => record,
            // The key was purged in the meantime.
            Err(AdminError::NotFound { .. }) => continue,
            Err(error) => return Err(error),
        };
        if record.transaction == store.in_key(wrote) {
            return Ok(Some(record));
        }
        last = last.or(Some(record));
    }
    Ok(last)
}

/// The events with the numbers of the transactions that wrote them, and whether these are all.
async fn search<S: TimelineSource + ?Sized>(
    store: &S,
    actor: &Actor,
    seek: &RequestSeek,
    until: Timestamp,
) -> Result<(Vec<(Arc<OutboxEvent>, i64)>, bool), AdminError> {
    let mut found = (Vec::new(), true);
    for around in AROUND {
        let (from, until) = (before(seek.from, around), until.after(around));
        let matching = store.matching_events(actor, seek, from, until).await?;
        let is_whole = !matching.is_cut && !matching.is_full();
        let mut events = matching.events;
        events.truncate(RequestSeek::EVENTS);
        let is_end = !events.is_empty() || !is_whole;
        found = (events, is_whole);
        if is_end {
            break;
        }
    }
    Ok(found)
}

/// Adds to events their status at every destination and the consumers that have accepted them.
async fn emitted<S: TimelineSource + ?Sized>(
    store: &S,
    actor: &Actor,
    found: Vec<(Arc<OutboxEvent>, i64)>,
    key: Option<&FoundKey>,
) -> Result<Vec<Emitted>, AdminError> {
    let own = own_destinations(store, actor).await?;
    let ids = found.iter().map(|(event, _)| event.event.id.to_string());
    let mut taken = store.messages_with(ids.collect()).await?;
    let answered = key.filter(|key| key.record.summary.completed_at.is_some());
    let positions: Vec<i64> = found.iter().map(|(event, _)| event.position).collect();
    let mut status = store.traces(&positions).await?;
    let mut all = Vec::with_capacity(found.len());
    for (event, wrote) in found {
        let mut traces = status.remove(&event.position).unwrap_or_default();
        if let Some(own) = &own {
            Trace::hide(&mut traces, |name| own.contains(name));
        }
        let id = event.event.id.to_string();
        let (its, others) = taken.into_iter().partition(|it| it.message_id == id);
        taken = others;
        all.push(Emitted {
            event,
            transaction: wrote.unsigned_abs(),
            is_of_answer: answered.is_some_and(|key| key.transaction == store.in_key(wrote)),
            traces,
            taken: its,
        });
    }
    Ok(all)
}

/// The destinations that receive only the actor's events; `None` if the actor may see all of them.
async fn own_destinations<S: TimelineSource + ?Sized>(
    store: &S,
    actor: &Actor,
) -> Result<Option<BTreeSet<String>>, AdminError> {
    if actor.tenant.is_none() {
        return Ok(None);
    }
    let declared = store.declarations(actor, None, PAGE_MAX).await?;
    Ok(Some(declared.items.into_iter().map(|it| it.name).collect()))
}

/// The sagas that a request started.
async fn sagas_of<S: TimelineSource + ?Sized>(
    store: &S,
    actor: &Actor,
    seek: &RequestSeek,
) -> Result<Vec<SagaLook>, AdminError> {
    let Some(hash) = &seek.hash else {
        return Ok(Vec::new());
    };
    let [near, _] = AROUND;
    let (from, until) = (before(seek.from, near), seek.until.after(near));
    let found = store.sagas_with(actor, hash, from, until).await?;
    let mut begun = Vec::with_capacity(found.len());
    for id in &found {
        match store.look_at_saga(actor, id).await {
            Ok(look) if is_of(seek, &look) => begun.push(look),
            Ok(_) | Err(AdminError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(begun)
}

/// Whether a saga has the requested hash and belongs to the same tenant, or to none.
fn is_of(seek: &RequestSeek, look: &SagaLook) -> bool {
    let tenant = &look.saga.tenant;
    look.saga.headers.get(RequestSeek::KEY_HASH) == seek.hash.as_ref()
        && (tenant.is_none() || *tenant == seek.tenant)
}

fn before(at: Timestamp, wait: Duration) -> Timestamp {
    let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(at.as_millis().saturating_sub(wait))
}
