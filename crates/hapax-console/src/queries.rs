//! Queries and actions of the pages. This is the only module that knows which store is used.
//!
//! For another store it would have to provide the same functions with the same types. Its results
//! are masked and limited to what the actor may see.

use std::sync::Arc;

use hapax::{
    event::EventId,
    key::Tenant,
    mask::{Mask, Shown},
    outbox::OutboxEvent,
    saga,
};
use hapax_postgres::{Postgres, admin as op};
use serde_json::Value;

use crate::destination_index::DestinationIndex;

pub(crate) use op::{
    Actor, AdminError, Filter, Page, audit, dead_letters::REASON_BYTES_MAX, deliveries,
    destination_of, events, inbox, jobs, keys, overview, sagas, stalled, timeline,
};

/// The queries of the pages.
pub(crate) struct Queries {
    store: Postgres,
    destinations_index: DestinationIndex,
    mask: Mask,
}

/// A destination.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    /// `database`, `configuration`, or `unknown` if it is declared in neither of them.
    pub(crate) declared_in: &'static str,
    /// `active`, `paused`, `disabled` or `removing`.
    pub(crate) state: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) paused_by: Option<String>,
    pub(crate) changed_by: Option<String>,
    pub(crate) changed_at: Option<hapax::Timestamp>,
    /// The declaration as JSON, without secrets.
    pub(crate) spec: Option<String>,
    /// The partitions that a relay has opened.
    pub(crate) partitions: Vec<String>,
}

type Answer<T> = Result<T, AdminError>;

impl Queries {
    pub(crate) fn new(store: Postgres, destinations_index: DestinationIndex, mask: Mask) -> Self {
        Self {
            store,
            destinations_index,
            mask,
        }
    }

    pub(crate) fn shown(&self, content_type: Option<&str>, bytes: &[u8]) -> Shown {
        self.mask.content(content_type, bytes)
    }

    /// The beginning of a receiver's response, masked. If it is incomplete JSON, only its length.
    pub(crate) fn head(&self, head: &[u8]) -> String {
        const SHOWN: usize = 512;

        match self.mask.head(head) {
            Some(text) => text.chars().take(SHOWN).collect(),
            None => format!("incomplete JSON, {} bytes", head.len()),
        }
    }

    pub(crate) fn hides(&self, name: &str) -> bool {
        self.mask.hides(name)
    }

    /// The figures, and stalled work with its cause, including destinations that only the
    /// configuration pauses.
    pub(crate) async fn overview(
        &self,
        actor: &Actor,
    ) -> Answer<(overview::Overview, Vec<stalled::Stalled>)> {
        use stalled::{Cause, Stalled, What};

        let (figures, mut all) = overview::with_stalled(&self.store, actor).await?;
        let tenant = actor.tenant.as_ref().map(Tenant::as_str);
        for (name, known) in self.destinations_index.configured() {
            let is_own = tenant.is_none() || known.tenant.as_deref() == tenant;
            let outcome = |it: &Stalled| matches!(&it.what, What::Partition(partition) if destination_of(partition) == name);
            if known.paused && is_own && !all.iter().any(outcome) {
                all.push(Stalled {
                    what: What::Partition(name.clone()),
                    cause: Cause::Paused { by: None },
                    since: None,
                    waiting: 0,
                });
            }
        }
        Ok((figures, all))
    }

    pub(crate) async fn events(
        &self,
        actor: &Actor,
        filter: &Filter,
        before: Option<i64>,
        limit: usize,
    ) -> Answer<Page<events::Summary, i64>> {
        events::list(&self.store, actor, filter, before, limit).await
    }

    /// An event by id or position. To respond fast, an event is searched by its id only around the
    /// time that the id contains.
    pub(crate) async fn event(&self, actor: &Actor, id: &str) -> Answer<Arc<OutboxEvent>> {
        let (found, is_near) = match (id.parse::<i64>(), id.parse::<EventId>()) {
            (Ok(position), _) => (events::at(&self.store, actor, position).await?, false),
            (_, Ok(id)) => (events::find_near(&self.store, actor, id).await?, true),
            _ => (None, false),
        };
        let nowhere = || {
            let id = id.escape_debug();
            missing(if is_near {
                format!(
                    "event {id} around the moment that its id tells of (one that was made elsewhere \
                     may lie far from it: the list of events goes through all with the filter id:{id})"
                )
            } else {
                format!("event {id}")
            })
        };
        found.ok_or_else(nowhere)
    }

    /// The state of an event at every destination.
    pub(crate) async fn traces(&self, actor: &Actor, position: i64) -> Answer<Vec<events::Trace>> {
        let mut traces = events::trace(&self.store, position).await?;
        self.destinations_index.show(actor, &mut traces).await?;
        Ok(traces)
    }

    pub(crate) async fn timeline_of_event(
        &self,
        actor: &Actor,
        id: &str,
    ) -> Answer<timeline::Timeline> {
        let event = self.event(actor, id).await?;
        let found = timeline::of_found(&self.store, actor, event).await?;
        self.seen(actor, found).await
    }

    pub(crate) async fn timeline_of_key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: Option<&str>,
        key: &str,
    ) -> Answer<timeline::Timeline> {
        let found = timeline::of_key(&self.store, actor, tenant, operation, key).await?;
        self.seen(actor, found).await
    }

    async fn seen(
        &self,
        actor: &Actor,
        mut found: timeline::Timeline,
    ) -> Answer<timeline::Timeline> {
        for emitted in &mut found.events {
            self.destinations_index
                .show(actor, &mut emitted.traces)
                .await?;
        }
        Ok(found)
    }

    pub(crate) async fn deliveries(
        &self,
        actor: &Actor,
        filter: &Filter,
        destination: Option<&str>,
        states: &[events::DeliveryStatus],
        before: Option<&deliveries::Cursor>,
        limit: usize,
    ) -> Answer<Page<deliveries::Delivery, deliveries::Cursor>> {
        deliveries::list(
            &self.store,
            actor,
            filter,
            destination,
            states,
            before,
            limit,
        )
        .await
    }

    pub(crate) async fn keys(
        &self,
        actor: &Actor,
        filter: &keys::Keys,
        before: Option<&keys::Cursor>,
        limit: usize,
    ) -> Answer<Page<keys::Summary, keys::Cursor>> {
        keys::list(&self.store, actor, filter, before, limit).await
    }

    pub(crate) async fn key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: &str,
        key: &str,
    ) -> Answer<keys::Record> {
        keys::get(&self.store, actor, tenant, operation, key).await
    }

    pub(crate) async fn purge_key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: &str,
        key: &str,
        version: keys::Version,
        reason: &str,
    ) -> Answer<()> {
        keys::purge(&self.store, actor, tenant, operation, key, version, reason).await
    }

    pub(crate) async fn inbox(
        &self,
        actor: &Actor,
        filter: &inbox::Messages,
        before: Option<&inbox::Cursor>,
        limit: usize,
    ) -> Answer<Page<inbox::Message, inbox::Cursor>> {
        inbox::list(&self.store, actor, filter, before, limit).await
    }

    pub(crate) async fn sagas(
        &self,
        actor: &Actor,
        filter: &saga::Filter,
        limit: usize,
    ) -> Answer<Page<sagas::Look, String>> {
        Ok(sagas::list(&self.store, actor, filter, limit).await?)
    }

    pub(crate) async fn saga(&self, actor: &Actor, id: &str) -> Answer<sagas::Look> {
        sagas::get(&self.store, actor, id).await
    }

    pub(crate) async fn decide(
        &self,
        actor: &Actor,
        id: &str,
        epoch: i64,
        decision: &saga::Decision,
        reason: &str,
    ) -> Answer<()> {
        sagas::decide(&self.store, actor, id, epoch, decision, reason).await
    }

    /// All destinations that are declared anywhere or that a relay has opened.
    pub(crate) async fn places(&self, actor: &Actor) -> Answer<Vec<Place>> {
        let mut declared = std::collections::BTreeMap::new();
        let mut after: Option<String> = None;
        loop {
            let page =
                op::destinations::list(&self.store, actor, after.as_deref(), op::PAGE_MAX).await?;
            declared.extend(page.items.into_iter().map(|it| (it.name.clone(), it)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let opened = op::destinations::partitions(&self.store, None).await?;
        let mut names: Vec<String> = declared.keys().cloned().collect();
        // An actor of a tenant sees only the destinations in the database, because the tenant of
        // the others is not known.
        if actor.tenant.is_none() {
            names.extend(self.destinations_index.configured().keys().cloned());
            names.extend(opened.iter().map(|it| destination_of(&it.name).to_owned()));
        }
        names.sort_unstable();
        names.dedup();
        let place = |name: String| {
            let partitions: Vec<_> = opened
                .iter()
                .filter(|it| destination_of(&it.name) == name)
                .collect();
            let known = declared.get(&name);
            let configured = self.destinations_index.configured().get(&name);
            let disabled = partitions.iter().find(|it| it.disabled_at.is_some());
            let spec = known.and_then(|it| it.spec.clone());
            let says_paused = match &spec {
                Some(text) => {
                    serde_json::from_str::<Value>(text).is_ok_and(|it| it["paused"] == true)
                }
                None => configured.is_some_and(|it| it.paused),
            };
            Place {
                declared_in: match (&spec, configured) {
                    (Some(_), _) => "database",
                    (None, Some(_)) => "configuration",
                    (None, None) => "unknown",
                },
                state: match known {
                    Some(it) if it.removed_at.is_some() => "removing",
                    Some(it) if it.paused_at.is_some() => "paused",
                    _ if says_paused => "paused",
                    _ if disabled.is_some() => "disabled",
                    _ => "active",
                },
                reason: disabled.and_then(|it| it.disabled_reason.clone()),
                paused_by: known.and_then(|it| it.paused_by.clone()),
                changed_by: known.map(|it| it.changed_by.clone()),
                changed_at: known.map(|it| it.changed_at),
                spec,
                partitions: partitions.iter().map(|it| it.name.clone()).collect(),
                name,
            }
        };
        Ok(names.into_iter().map(place).collect())
    }

    pub(crate) async fn place(&self, actor: &Actor, name: &str) -> Answer<Place> {
        let all = self.places(actor).await?;
        let found = all.into_iter().find(|it| it.name == name);
        found.ok_or_else(|| missing(format!("destination {}", name.escape_debug())))
    }

    pub(crate) async fn jobs(
        &self,
        actor: &Actor,
        destination: Option<&str>,
        state: Option<&str>,
        before: Option<i64>,
        limit: usize,
    ) -> Answer<Page<jobs::Job, i64>> {
        jobs::list(&self.store, actor, destination, state, before, limit).await
    }

    pub(crate) async fn audit(
        &self,
        actor: &Actor,
        acts: &audit::Acts,
        before: Option<i64>,
        limit: usize,
    ) -> Answer<Page<audit::Entry, i64>> {
        Ok(audit::list(&self.store, actor, acts, before, limit).await?)
    }

    /// The current snapshot, for a job that is limited to it.
    pub(crate) async fn seen_now(&self) -> Answer<jobs::Seen> {
        Ok(jobs::Seen::now(&self.store).await?)
    }

    pub(crate) async fn count_dead(
        &self,
        actor: &Actor,
        destination: &str,
        filter: &Filter,
        seen: &jobs::Seen,
    ) -> Answer<u64> {
        op::dead_letters::count(&self.store, actor, destination, filter, seen).await
    }

    /// The number of events that a job would deliver to a destination again.
    pub(crate) async fn count_events(
        &self,
        actor: &Actor,
        destination: &str,
        filter: &Filter,
    ) -> Answer<u64> {
        let (filter, _) = self.offered(actor, destination, filter).await?;
        events::count(&self.store, actor, &filter).await
    }

    pub(crate) async fn replay(&self, actor: &Actor, partition: &str, position: i64) -> Answer<()> {
        op::dead_letters::replay(&self.store, actor, partition, position).await
    }

    pub(crate) async fn edit(
        &self,
        actor: &Actor,
        partition: &str,
        position: i64,
        patch: &str,
    ) -> Answer<()> {
        op::dead_letters::edit_and_replay(&self.store, actor, partition, position, patch).await
    }

    pub(crate) async fn discard(
        &self,
        actor: &Actor,
        partition: &str,
        position: i64,
        reason: &str,
    ) -> Answer<()> {
        op::dead_letters::discard(&self.store, actor, partition, position, reason).await
    }

    pub(crate) async fn replay_dead(
        &self,
        actor: &Actor,
        destination: &str,
        filter: &Filter,
        asked: &jobs::Asked,
    ) -> Answer<jobs::Job> {
        jobs::replay_dead_letters(&self.store, actor, destination, filter, asked).await
    }

    pub(crate) async fn discard_dead(
        &self,
        actor: &Actor,
        destination: &str,
        filter: &Filter,
        reason: &str,
        asked: &jobs::Asked,
    ) -> Answer<jobs::Job> {
        jobs::discard_dead_letters(&self.store, actor, destination, filter, reason, asked).await
    }

    pub(crate) async fn replay_events(
        &self,
        actor: &Actor,
        destination: &str,
        filter: &Filter,
        asked: &jobs::Asked,
    ) -> Answer<jobs::Job> {
        let (filter, partitions) = self.offered(actor, destination, filter).await?;
        jobs::replay_events(&self.store, actor, destination, &filter, partitions, asked).await
    }

    pub(crate) async fn pause(&self, actor: &Actor, name: &str) -> Answer<()> {
        op::destinations::pause(&self.store, actor, name).await?;
        Ok(())
    }

    pub(crate) async fn resume(&self, actor: &Actor, name: &str) -> Answer<()> {
        self.destinations_index.resume(actor, name).await?;
        Ok(())
    }

    pub(crate) async fn remove(&self, actor: &Actor, name: &str) -> Answer<jobs::Job> {
        op::destinations::remove(&self.store, actor, name).await
    }

    pub(crate) async fn cancel(&self, actor: &Actor, job: i64) -> Answer<()> {
        jobs::cancel(&self.store, actor, job).await
    }

    pub(crate) async fn job(&self, actor: &Actor, job: i64) -> Answer<jobs::Job> {
        jobs::get(&self.store, actor, job).await
    }

    /// The filter of a job that delivers events again. A destination of a tenant receives only that
    /// tenant's events, and an actor of a tenant can use only its own destinations.
    async fn offered(
        &self,
        actor: &Actor,
        destination: &str,
        filter: &Filter,
    ) -> Answer<(Filter, Option<u8>)> {
        self.destinations_index
            .offered(actor, destination, filter.clone())
            .await
    }
}

fn missing(what: String) -> AdminError {
    AdminError::NotFound { what }
}
