//! Index of destinations: tenant, partitions and pauses, from the database and from the host's
//! configuration.
//!
//! The admin API and the console use the same index.

use std::{collections::BTreeMap, sync::Arc};

use hapax::key::Tenant;
use hapax_postgres::{
    Postgres,
    admin::{
        Actor, AdminError, Filter, destination_of,
        destinations::{self, Declared},
        events::{DeliveryStatus, Trace},
    },
};
use serde_json::Value;

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

/// The destinations of the database and of the configuration.
#[derive(Clone, Debug)]
pub struct DestinationIndex {
    store: Postgres,
    configured: Arc<BTreeMap<String, Configured>>,
}

impl DestinationIndex {
    /// Creates an index for a store and the destinations of the configuration.
    pub fn new(store: Postgres, configured: BTreeMap<String, Configured>) -> Self {
        let configured = Arc::new(configured);
        Self { store, configured }
    }

    /// The destinations of the configuration.
    pub fn configured(&self) -> &BTreeMap<String, Configured> {
        &self.configured
    }

    /// The number of partitions of a destination, and the tenant whose events are routed to it.
    ///
    /// # Errors
    /// `Conflict` if a relay has opened the destination but it is declared in neither place, so
    /// that its tenant is unknown.
    pub async fn carried(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<(Option<u8>, Option<String>), AdminError> {
        if let Some(known) = self.declared(name).await?
            && let Some(text) = known.spec
        {
            let spec: Value = serde_json::from_str(&text).unwrap_or_default();
            let partitions = u8::try_from(spec["partitions"].as_u64().unwrap_or(1)).ok();
            return Ok((partitions, spec["tenant"].as_str().map(str::to_owned)));
        }
        if let Some(known) = self.configured.get(name) {
            return Ok((known.partitions, known.tenant.clone()));
        }
        let opened = destinations::partitions(&self.store, Some(name)).await?;
        if opened.is_empty() || actor.tenant.is_some() {
            let what = format!("destination {name}");
            return Err(AdminError::NotFound { what });
        }
        let what = format!(
            "destination {name} is declared neither in the database nor in this configuration, so \
             nobody knows whose events it takes: give the configuration of its relay"
        );
        Err(AdminError::Conflict { what })
    }

    /// Whether only events of the actor's tenant are routed to a destination.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn is_own(&self, actor: &Actor, name: &str) -> Result<bool, AdminError> {
        let tenant = match self.carried(actor, name).await {
            Ok((_, tenant)) => tenant,
            Err(AdminError::NotFound { .. } | AdminError::Conflict { .. }) => None,
            Err(error) => return Err(error),
        };
        let own = actor.tenant.as_ref().map(Tenant::as_str);
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
        traces.retain(|trace| {
            !matches!(
                trace.status,
                DeliveryStatus::Unread | DeliveryStatus::Passed
            )
        });
        for trace in traces {
            if !self.is_own(actor, destination_of(&trace.partition)).await? {
                for attempt in &mut trace.log {
                    attempt.response_head.clear();
                }
            }
        }
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
        mut filter: Filter,
    ) -> Result<(Filter, Option<u8>), AdminError> {
        let (partitions, tenant) = self.carried(actor, name).await?;
        let only = tenant.and_then(|name| Tenant::new(name).ok());
        if actor.tenant.is_some() && actor.tenant != only {
            let what = format!("destination {name}");
            return Err(AdminError::NotFound { what });
        }
        if let Some(only) = only {
            if filter.tenant.as_ref().is_some_and(|asked| *asked != only) {
                let problem = "is not the tenant of the destination".to_owned();
                let field = "tenant";
                return Err(AdminError::Invalid { field, problem });
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
        let known = match destinations::get(&self.store, actor, name).await {
            Ok(known) => Some(known),
            Err(AdminError::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
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
            return Err(AdminError::Conflict { what });
        }
        destinations::resume(&self.store, actor, name).await
    }

    /// The declaration of a destination in the database, if it has not been removed, for any actor.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn declared(&self, name: &str) -> Result<Option<Declared>, AdminError> {
        match destinations::get(&self.store, &Actor::new(""), name).await {
            Ok(known) => Ok(Some(known)),
            Err(AdminError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
