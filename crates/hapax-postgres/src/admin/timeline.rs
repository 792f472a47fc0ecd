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

use async_trait::async_trait;
use hapax::{
    Timestamp,
    admin::{
        Actor, AdminError, DestinationAdmin, Emitted, EventAdmin, KeyAdmin, KeyFilter, PAGE_MAX,
        SagaAdmin, SagaLook, Timeline, TimelineAdmin, Trace,
    },
    key::Tenant,
    outbox::OutboxEvent,
};

use super::{
    events::{self, SKEW},
    inbox,
    keys::{self, Found},
};
use crate::{
    outbox,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

#[async_trait]
impl TimelineAdmin for Postgres {
    async fn timeline_of_event(
        &self,
        actor: &Actor,
        event: Arc<OutboxEvent>,
    ) -> Result<Timeline, AdminError> {
        let asked = [&event.position as &dyn Param];
        let wrote = self.ask(query!("admin/transaction_of"), &asked).await?;
        let wrote: i64 = wrote.first().map_or(0, |row| row.get(0));
        let hash = event.event.headers.get(KEY_HASH).cloned();
        let key = match &hash {
            Some(hash) => key_of(self, actor, &event, hash, wrote).await?,
            None => None,
        };
        let (mut timeline, key) = if let Some(key) = key {
            of_record(self, actor, key).await?
        } else {
            let at = event.event.created_at;
            let seek = Seek {
                hash,
                tenant: event.event.tenant.clone(),
                transaction: wrote & LOW,
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
            let more = ways(self, actor, found, key.as_ref()).await?;
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
        let key = keys::one(self, actor, tenant, operation, key).await?;
        Ok(of_record(self, actor, key).await?.0)
    }
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
    key: Found,
) -> Result<(Timeline, Option<Found>), AdminError> {
    let summary = &key.record.summary;
    let seek = Seek {
        hash: Some(summary.short_hash.clone()),
        tenant: Tenant::new(summary.tenant.as_str()).ok(),
        transaction: key.version.xmin,
        from: summary.created_at,
        until: summary.completed_at.unwrap_or(key.at),
    };
    let timeline = look(store, actor, &seek, Some(&key)).await?;
    Ok((timeline, Some(key)))
}

async fn look(
    store: &Postgres,
    actor: &Actor,
    seek: &Seek,
    key: Option<&Found>,
) -> Result<Timeline, AdminError> {
    let sagas = sagas_of(store, actor, seek).await?;
    // The events of a saga have the hash of the key under which the saga was started.
    let ends = sagas
        .iter()
        .map(|look| look.saga.ended_at.unwrap_or(look.at));
    let until = ends.max().map_or(seek.until, |end| end.max(seek.until));
    let (found, is_whole) = search(store, actor, seek, until).await?;
    Ok(Timeline {
        events: ways(store, actor, found, key).await?,
        key: key.map(|key| key.record.clone()),
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
) -> Result<Option<Found>, AdminError> {
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
        let record = match keys::one(store, actor, tenant, operation, &it.key).await {
            Ok(record) => record,
            // The key was purged in the meantime.
            Err(AdminError::NotFound { .. }) => continue,
            Err(error) => return Err(error),
        };
        if record.version.xmin == wrote & LOW {
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
    key: Option<&Found>,
) -> Result<Vec<Emitted>, AdminError> {
    let own = own_destinations(store, actor).await?;
    let ids = found.iter().map(|(event, _)| event.event.id.to_string());
    let mut taken = inbox::taken(store, ids.collect(), None, None).await?;
    let answered = key.filter(|key| key.record.summary.completed_at.is_some());
    let positions: Vec<i64> = found.iter().map(|(event, _)| event.position).collect();
    let mut ways = store.traces(&positions).await?;
    let mut all = Vec::with_capacity(found.len());
    for (event, wrote) in found {
        let mut traces = ways.remove(&event.position).unwrap_or_default();
        if let Some(own) = &own {
            Trace::hide(&mut traces, |name| own.contains(name));
        }
        let id = event.event.id.to_string();
        let (its, others) = taken.into_iter().partition(|it| it.message_id == id);
        taken = others;
        all.push(Emitted {
            event,
            transaction: wrote.unsigned_abs(),
            is_of_answer: answered.is_some_and(|key| key.version.xmin == wrote & LOW),
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
    let declared = store.declarations(actor, None, PAGE_MAX).await?;
    Ok(Some(declared.items.into_iter().map(|it| it.name).collect()))
}

/// The sagas that a request started.
async fn sagas_of(
    store: &Postgres,
    actor: &Actor,
    seek: &Seek,
) -> Result<Vec<SagaLook>, AdminError> {
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
        match store.look_at_saga(actor, row.get(0)).await {
            Ok(look) if is_of(seek, &look) => begun.push(look),
            Ok(_) | Err(AdminError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(begun)
}

/// Whether a saga has the requested hash and belongs to the same tenant, or to none.
fn is_of(seek: &Seek, look: &SagaLook) -> bool {
    let tenant = &look.saga.tenant;
    look.saga.headers.get(KEY_HASH) == seek.hash.as_ref()
        && (tenant.is_none() || *tenant == seek.tenant)
}

fn before(at: Timestamp, wait: Duration) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_sub(events::millis(wait)))
}
