//! Index of destinations: their declarations, tenants, partitions and pauses, from the database and
//! from the configuration of the process.
//!
//! The CLI, the admin API and the console use the same index.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    Actor, Admin, AdminError, Cause, Counts, Declared, DeliveryStatus, Destination, EventFilter,
    EventSummary, Overview, PAGE_MAX, Page, Stalled, StalledItem, Trace, destination_of,
    partitions_of,
};
use crate::{key::Tenant, relay};

/// Number of events that a page of unread events examines, however few of them it may list.
const UNREAD_LOOK: usize = 200;
/// Positions before a frontier at which an event may still be unread, because its transaction was
/// committed late.
const LATE: i64 = 1_000;

/// The configuration of a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configured {
    /// The number of partitions.
    pub partitions: Option<u8>,
    /// The tenant whose events are routed to it.
    pub tenant: Option<String>,
    /// Whether its own setting pauses it.
    pub paused: bool,
}

impl From<&relay::Destination> for Configured {
    fn from(destination: &relay::Destination) -> Self {
        let tenant = destination.tenant.as_ref();
        Self {
            partitions: Some(destination.partitions.get()),
            tenant: tenant.map(|tenant| tenant.as_str().to_owned()),
            paused: destination.paused,
        }
    }
}

/// The configuration of the destinations of a relay, by name: for the console of a service that
/// declares its destinations in code.
pub fn configured(destinations: &[relay::Destination]) -> BTreeMap<String, Configured> {
    let known = destinations.iter().map(|it| (it.name.clone(), it.into()));
    known.collect()
}

/// The destinations of the database and of the configuration.
#[derive(Clone, Debug)]
pub struct DestinationIndex {
    store: Arc<dyn Admin>,
    configured: Arc<BTreeMap<String, Configured>>,
}

impl DestinationIndex {
    /// Creates an index for a store and the destinations of the configuration.
    pub fn new(store: Arc<dyn Admin>, configured: BTreeMap<String, Configured>) -> Self {
        let configured = Arc::new(configured);
        Self { store, configured }
    }

    /// The store.
    pub fn store(&self) -> &dyn Admin {
        &*self.store
    }

    /// The destinations of the configuration.
    pub fn configured(&self) -> &BTreeMap<String, Configured> {
        &self.configured
    }

    /// Lists all destinations that are declared anywhere or that a relay has opened, by name.
    ///
    /// An actor of a tenant sees only the destinations in the database, because the tenant of the
    /// others is not known.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn list(&self, actor: &Actor) -> Result<Vec<Destination>, AdminError> {
        let mut declared = BTreeMap::new();
        let mut after = None;
        loop {
            let page = self.store.declarations(actor, after.as_deref(), PAGE_MAX);
            let page = page.await?;
            declared.extend(page.items.into_iter().map(|it| (it.name.clone(), it)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let opened = self.store.partitions(None).await?;
        let mut names: Vec<String> = declared.keys().cloned().collect();
        if actor.tenant.is_none() {
            names.extend(self.configured.keys().cloned());
            names.extend(opened.iter().map(|it| destination_of(&it.name).to_owned()));
        }
        names.sort_unstable();
        names.dedup();
        let destination = |name: String| {
            let partitions = opened.iter().filter(|it| destination_of(&it.name) == name);
            let partitions: Vec<_> = partitions.collect();
            let configured = self.configured.get(&name).map(|it| it.paused);
            Destination::of(name.clone(), declared.get(&name), &partitions, configured)
        };
        Ok(names.into_iter().map(destination).collect())
    }

    /// Reads one destination, without its progress.
    ///
    /// # Errors
    /// `NotFound` if it does not exist, or the actor may not see it.
    pub async fn get(&self, actor: &Actor, name: &str) -> Result<Destination, AdminError> {
        let all = self.list(actor).await?;
        let found = all.into_iter().find(|it| it.name == name);
        found.ok_or_else(|| not_found(&name.escape_debug().to_string()))
    }

    /// Reads one destination with its progress.
    ///
    /// # Errors
    /// `NotFound` if it does not exist, or the actor may not see it.
    pub async fn get_counted(&self, actor: &Actor, name: &str) -> Result<Destination, AdminError> {
        let mut found = self.get(actor, name).await?;
        let mut counts = Counts::default();
        for partition in &found.partitions {
            let backlog = self.store.partition_backlog(partition).await?;
            counts.backlog += backlog.events;
            counts.parked += backlog.parked;
            counts.dead += backlog.dead;
        }
        found.counts = Some(counts);
        Ok(found)
    }

    /// Lists the events that a destination has not read, whether they are for it or not, the newest
    /// first. A page may be shorter than `limit` and still have a next page.
    ///
    /// # Errors
    /// `NotFound` if the destination does not exist, or the actor may not see it; `Conflict` if no
    /// relay has opened it, so that it has no partition that could have read an event.
    pub async fn unread(
        &self,
        actor: &Actor,
        name: &str,
        filter: &EventFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<EventSummary>, AdminError> {
        let found = self.get(actor, name).await?;
        if found.partitions.is_empty() {
            let what = format!("no relay has opened destination {name} yet: it has read no event");
            return Err(AdminError::conflict(what));
        }
        let mut read_to = i64::MAX;
        for partition in &found.partitions {
            let newest = self.store.partition_backlog(partition).await?.newest;
            read_to = read_to.min(newest.map_or(i64::MIN, |it| it.high));
        }
        let mut filter = filter.clone();
        filter.after = filter.after.max(Some(read_to.saturating_sub(LATE)));
        let events = self.store.events(actor, &filter, before, UNREAD_LOOK);
        let mut page = events.await?;
        let positions: Vec<i64> = page.items.iter().map(|it| it.position).collect();
        let traces = self.store.traces(&positions).await?;
        let is_unread = |it: &Trace| it.destination == name && it.status == DeliveryStatus::Unread;
        page.items.retain(|event| {
            let traces = traces.get(&event.position);
            traces.is_some_and(|traces| traces.iter().any(is_unread))
        });
        let limit = limit.max(1);
        if page.items.len() > limit {
            page.items.truncate(limit);
            page.next = page.items.last().map(|it| it.position.to_string());
        }
        Ok(page)
    }

    /// A destination that was just declared, before a relay opens it.
    pub fn declared_now(&self, declared: &Declared) -> Destination {
        let configured = self.configured.get(&declared.name).map(|it| it.paused);
        Destination::of(declared.name.clone(), Some(declared), &[], configured)
    }

    /// What is stalled, including destinations that only the configuration pauses.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn stalled(&self, actor: &Actor) -> Result<Vec<Stalled>, AdminError> {
        let stalled = self.store.stalled(actor).await?;
        Ok(self.with_paused(actor, stalled))
    }

    /// The figures, and what [`stalled`](Self::stalled) returns.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn overview_and_stalled(
        &self,
        actor: &Actor,
    ) -> Result<(Overview, Vec<Stalled>), AdminError> {
        let (overview, stalled) = self.store.overview_and_stalled(actor).await?;
        Ok((overview, self.with_paused(actor, stalled)))
    }

    /// Adds the destinations that the configuration pauses, which the database does not know.
    fn with_paused(&self, actor: &Actor, mut all: Vec<Stalled>) -> Vec<Stalled> {
        let tenant = actor.tenant();
        for (name, known) in &*self.configured {
            let is_own = tenant.is_none() || known.tenant.as_deref() == tenant;
            let is_listed = |it: &Stalled| matches!(&it.what, StalledItem::Partition { partition } if destination_of(partition) == name);
            if known.paused && is_own && !all.iter().any(is_listed) {
                let partition = name.clone();
                let what = StalledItem::Partition { partition };
                all.push(Stalled::new(what, Cause::Paused { by: None }, None, 0));
            }
        }
        all
    }

    /// The number of partitions of a destination, and the tenant whose events are routed to it.
    ///
    /// # Errors
    /// `Conflict` if a relay has opened the destination but it is declared in neither place, so
    /// that its tenant is unknown.
    async fn routing(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<(Option<u8>, Option<String>), AdminError> {
        if let Some(known) = self.declared(name).await?
            && let Some(text) = known.spec
        {
            let spec: Value = serde_json::from_str(&text).unwrap_or_default();
            let partitions = u8::try_from(partitions_of(&spec)).ok();
            return Ok((partitions, spec["tenant"].as_str().map(str::to_owned)));
        }
        if let Some(known) = self.configured.get(name) {
            return Ok((known.partitions, known.tenant.clone()));
        }
        let opened = self.store.partitions(Some(name)).await?;
        if opened.is_empty() || actor.tenant.is_some() {
            return Err(not_found(name));
        }
        Err(AdminError::conflict(format!(
            "destination {name} is declared neither in the database nor in this configuration, so \
             the events that it receives are not known: use the configuration of its relay"
        )))
    }

    /// Whether only events of the actor's tenant are routed to a destination.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn is_own(&self, actor: &Actor, name: &str) -> Result<bool, AdminError> {
        let tenant = match self.routing(actor, name).await {
            Ok((_, tenant)) => tenant,
            Err(AdminError::NotFound { .. } | AdminError::Conflict { .. }) => None,
            Err(error) => return Err(error),
        };
        let own = actor.tenant();
        Ok(own.is_some() && tenant.as_deref() == own)
    }

    /// Removes from an event's deliveries what an actor of a tenant may not see: destinations at
    /// which no attempt of the event is recorded, and the responses of receivers of destinations
    /// that are not the tenant's own.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn show(&self, actor: &Actor, traces: &mut Vec<Trace>) -> Result<(), AdminError> {
        if actor.tenant.is_none() {
            return Ok(());
        }
        let mut own = Vec::new();
        for trace in traces.iter().filter(|it| it.status.has_attempt()) {
            if self.is_own(actor, &trace.destination).await? {
                own.push(trace.destination.clone());
            }
        }
        Trace::hide(traces, |name| own.iter().any(|it| it == name));
        Ok(())
    }

    /// The filter of a job that delivers events to a destination again, and its number of
    /// partitions. A destination of a tenant receives only that tenant's events, and an actor of a
    /// tenant can use only its own destinations.
    ///
    /// # Errors
    /// `NotFound` if the destination does not belong to the actor, `Invalid` if the filter asks for
    /// events of another tenant.
    pub async fn offered(
        &self,
        actor: &Actor,
        name: &str,
        mut filter: EventFilter,
    ) -> Result<(EventFilter, Option<u8>), AdminError> {
        let (partitions, tenant) = self.routing(actor, name).await?;
        let only = tenant.and_then(|name| Tenant::new(name).ok());
        if actor.tenant.is_some() && actor.tenant != only {
            return Err(not_found(name));
        }
        if let Some(only) = only {
            if filter.tenant.as_ref().is_some_and(|asked| *asked != only) {
                let problem = "is not the tenant of the destination";
                return Err(AdminError::invalid("tenant", problem));
            }
            filter.tenant = Some(only);
        }
        Ok((filter, partitions))
    }

    /// Resumes a paused or disabled destination. Returns false if it is neither.
    ///
    /// # Errors
    /// `Conflict` if the destination is paused by its own setting, which has to be changed where it
    /// is declared.
    pub async fn resume(&self, actor: &Actor, name: &str) -> Result<bool, AdminError> {
        let known = found(self.store.declaration(actor, name).await)?;
        let setting = match known.and_then(|known| known.spec) {
            Some(text) => {
                let spec: Value = serde_json::from_str(&text).unwrap_or_default();
                (spec["paused"] == true).then(|| "paused of its declaration".to_owned())
            }
            None if actor.tenant.is_some() => None,
            None => {
                let configured = self.configured.get(name).filter(|known| known.paused);
                configured.map(|_| format!("[destinations.{name}] paused of the configuration"))
            }
        };
        if let Some(setting) = setting {
            let what =
                format!("destination {name} is paused by the setting {setting}: change it there");
            return Err(AdminError::conflict(what));
        }
        self.store.resume_destination(actor, name).await
    }

    /// The declaration of a destination in the database, if it has not been removed, for any actor.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn declared(&self, name: &str) -> Result<Option<Declared>, AdminError> {
        found(self.store.declaration(&Actor::new(""), name).await)
    }
}

fn found(result: Result<Declared, AdminError>) -> Result<Option<Declared>, AdminError> {
    match result {
        Ok(known) => Ok(Some(known)),
        Err(AdminError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn not_found(name: &str) -> AdminError {
    AdminError::not_found(format!("destination {name}"))
}
