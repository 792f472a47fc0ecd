//! An endpoint as a relay knows it: its URL, and the events that it takes.

use std::{fmt, sync::Arc};

use crate::{
    clock::Timestamp,
    event::Event,
    filter::{Applied, Filter, Reading},
    key::Tenant,
    mapping::Mapping,
    relay::route::Pattern,
    sink::PayloadMode,
};

/// An endpoint of a tenant.
#[derive(Clone)]
pub struct Endpoint {
    /// The id.
    pub id: String,
    /// The tenant whose events it receives.
    pub tenant: Tenant,
    /// The URL that events are posted to.
    pub url: String,
    /// Patterns of event types. An event is sent if at least one matches.
    pub patterns: Vec<Pattern>,
    /// The filter that an event has to match too; `None` for no filter.
    pub filter: Option<Filter>,
    /// The parts of an event in its requests.
    pub payload: PayloadMode,
    /// What makes the bodies of its requests; `None` for the usual body of webhooks.
    pub mapping: Option<Mapping>,
    /// The secrets, encrypted by the program that stored them.
    pub sealed: Option<Vec<u8>>,
    /// Until when the last of the secrets before rotations signs too.
    pub previous_until: Option<Timestamp>,
    /// Whether it receives events.
    pub is_enabled: bool,
    /// Whether it was enabled a short time ago and gets what has waited in the order of the events. Until
    /// nothing waits, new events go through the queue.
    pub is_catching_up: bool,
    /// The version. It changes with each change of the endpoint.
    pub version: i64,
}

impl Endpoint {
    /// Whether the endpoint receives an event.
    pub fn takes(&self, event: &Event) -> bool {
        self.takes_reading(&Reading::of(event))
    }

    /// Whether the endpoint receives an event that is read for several endpoints. The filter is applied
    /// last, because it reads the payload.
    pub(super) fn takes_reading(&self, reading: &Reading<'_>) -> bool {
        let event = reading.event();
        let matches = |filter: &Filter| filter.apply_to(reading) == Applied::Matches;
        self.takes_type(&event.kind)
            && event.tenant.as_ref() == Some(&self.tenant)
            && self.filter.as_ref().is_none_or(matches)
    }

    /// Whether the endpoint is enabled and one of its patterns matches a type.
    pub(super) fn takes_type(&self, kind: &str) -> bool {
        self.is_enabled && self.patterns.iter().any(|it| it.matches(kind))
    }
}

impl fmt::Debug for Endpoint {
    /// Omits the URL, because paths and queries of webhooks contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// The state of an endpoint after a change.
#[derive(Clone, Debug)]
pub struct EndpointChange {
    /// The id.
    pub id: String,
    /// The tenant.
    pub tenant: String,
    /// The version of the change. A change that is committed later has a higher version.
    pub version: i64,
    /// The endpoint.
    pub state: EndpointState,
}

/// An endpoint, if it exists and can be read.
#[derive(Clone, Debug)]
pub enum EndpointState {
    /// The endpoint as it is now.
    Present(Arc<Endpoint>),
    /// The row cannot be read by this version. Events of its tenant wait until it can.
    Unreadable(String),
    /// The endpoint was deleted.
    Deleted,
}

/// The columns of an endpoint's row, as a store reads them.
#[derive(Clone, Debug, Default)]
pub struct EndpointColumns {
    /// The id.
    pub id: String,
    /// The tenant.
    pub tenant: String,
    /// The URL.
    pub url: String,
    /// The patterns, as a JSON array.
    pub types: String,
    /// The filter, as JSON.
    pub filter: Option<String>,
    /// The parts of an event in its requests: `full` or `thin`.
    pub payload_mode: String,
    /// The mapping of its bodies, as JSON.
    pub mapping: Option<String>,
    /// The encrypted secrets.
    pub sealed: Option<Vec<u8>>,
    /// Until when the previous secret signs.
    pub previous_until: Option<Timestamp>,
    /// Whether it receives events.
    pub is_enabled: bool,
    /// Whether it was deleted.
    pub is_deleted: bool,
    /// Whether it gets what has waited in the order of the events.
    pub is_catching_up: bool,
    /// The version.
    pub version: i64,
}

impl EndpointColumns {
    /// The change that the row describes.
    pub fn read(self) -> EndpointChange {
        let (id, tenant, version) = (self.id.clone(), self.tenant.clone(), self.version);
        let state = if self.is_deleted {
            EndpointState::Deleted
        } else {
            match self.endpoint() {
                Ok(endpoint) => EndpointState::Present(Arc::new(endpoint)),
                Err(problem) => EndpointState::Unreadable(problem),
            }
        };
        EndpointChange {
            id,
            tenant,
            version,
            state,
        }
    }

    fn endpoint(self) -> Result<Endpoint, String> {
        let types: Vec<String> = serde_json::from_str(&self.types)
            .map_err(|_| "the types are not a JSON array of strings".to_owned())?;
        let filter = self.filter.as_deref().map(Filter::parse).transpose();
        let payload = PayloadMode::parse(&self.payload_mode);
        let mapping = self.mapping.as_deref().map(Mapping::parse).transpose();
        let tenant = Tenant::new(self.tenant);
        Ok(Endpoint {
            id: self.id,
            tenant: tenant.map_err(|error| format!("the tenant is not valid: {error}"))?,
            url: self.url,
            patterns: types.into_iter().map(Pattern::new).collect(),
            filter: filter.map_err(|error| format!("the filter is not valid: {error}"))?,
            payload: payload.ok_or("the payload is neither full nor thin")?,
            mapping: mapping.map_err(|error| format!("the mapping is not valid: {error}"))?,
            sealed: self.sealed,
            previous_until: self.previous_until,
            is_enabled: self.is_enabled,
            is_catching_up: self.is_catching_up,
            version: self.version,
        })
    }
}
