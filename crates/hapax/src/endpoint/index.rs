//! Index of the endpoints in memory: those that take an event, by tenant and type.
//!
//! It is built from the changes of the store, by version. The endpoints of a tenant that take a type
//! are found once and remembered until an endpoint of the tenant changes. The number of remembered
//! types is bounded for each tenant.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::record::{Endpoint, EndpointChange, EndpointState};
use crate::{event::Event, limits::ENDPOINT_INDEX_TYPES};

/// The endpoints of all tenants.
#[derive(Debug, Default)]
pub(super) struct Index {
    tenants: HashMap<String, OfTenant>,
    version: i64,
    /// The endpoint whose change has this version.
    last: Option<String>,
}

/// The endpoints of a tenant that take a type.
pub(super) type OfType = Arc<[Arc<Endpoint>]>;

#[derive(Debug, Default)]
struct OfTenant {
    endpoints: BTreeMap<String, Arc<Endpoint>>,
    /// Endpoints whose row cannot be read.
    unreadable: BTreeMap<String, String>,
    by_type: HashMap<String, OfType>,
}

/// An endpoint of the event's tenant cannot be read, so it is not known whether it takes the event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("endpoint {id} cannot be read: {problem}")]
pub(super) struct UnreadableEndpoint {
    id: String,
    problem: String,
}

impl Index {
    /// The highest version of the changes that were applied.
    pub(super) fn version(&self) -> i64 {
        self.version
    }

    /// The version after which the store is read, and the endpoint that this read has to contain. The
    /// last change is read again: its row has a higher version by now, or the same one. If it is missing,
    /// the store was set back to a time before the change, or the row of a deleted endpoint was purged.
    pub(super) fn last_change(&self) -> (i64, Option<String>) {
        match &self.last {
            Some(id) => (self.version - 1, Some(id.clone())),
            None => (self.version, None),
        }
    }

    /// Applies a change.
    pub(super) fn apply(&mut self, change: EndpointChange) {
        let EndpointChange {
            id,
            tenant,
            version,
            state,
        } = change;
        if version >= self.version {
            (self.version, self.last) = (version, Some(id.clone()));
        }
        let own = self.tenants.entry(tenant.clone()).or_default();
        own.by_type.clear();
        own.unreadable.remove(&id);
        own.endpoints.remove(&id);
        match state {
            EndpointState::Present(endpoint) => {
                own.endpoints.insert(id, endpoint);
            }
            EndpointState::Unreadable(problem) => {
                tracing::error!(tenant, endpoint = id, problem, "endpoint cannot be read");
                own.unreadable.insert(id, problem);
            }
            EndpointState::Deleted => {}
        }
        if own.endpoints.is_empty() && own.unreadable.is_empty() {
            self.tenants.remove(&tenant);
        }
    }

    /// The endpoints of the event's tenant that take its type. An event without a tenant has none.
    /// Filters are not applied, because they read the payload, and other callers wait for the index.
    pub(super) fn of_type(&mut self, event: &Event) -> Result<OfType, UnreadableEndpoint> {
        let own = event.tenant.as_ref();
        let own = own.and_then(|tenant| self.tenants.get_mut(tenant.as_str()));
        let Some(own) = own else {
            return Ok(OfType::default());
        };
        if let Some((id, problem)) = own.unreadable.first_key_value() {
            return Err(UnreadableEndpoint {
                id: id.clone(),
                problem: problem.clone(),
            });
        }
        Ok(own.of_type(&event.kind))
    }

    /// An endpoint of a tenant, by its id.
    pub(super) fn find(&self, tenant: &str, id: &str) -> Option<Arc<Endpoint>> {
        self.tenants.get(tenant)?.endpoints.get(id).cloned()
    }
}

impl OfTenant {
    fn of_type(&mut self, kind: &str) -> OfType {
        if let Some(known) = self.by_type.get(kind) {
            return Arc::clone(known);
        }
        let endpoints = self.endpoints.values();
        let of_type: OfType = endpoints
            .filter(|it| it.takes_type(kind))
            .cloned()
            .collect();
        if self.by_type.len() >= ENDPOINT_INDEX_TYPES {
            self.by_type.clear();
        }
        self.by_type.insert(kind.to_owned(), Arc::clone(&of_type));
        of_type
    }
}
