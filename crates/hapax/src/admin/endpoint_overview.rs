//! Endpoints of all tenants, as operators see them: their states and figures, what waits for them, and
//! the deliveries of one event.
//!
//! An actor of a tenant sees the endpoints of that tenant only. [`EndpointAdmin`](super::EndpointAdmin)
//! has everything about one endpoint. Each call reads a bounded number of attempts and deliveries.

use async_trait::async_trait;

use super::{Actor, AdminError, EndpointHealth, EndpointStatus, Page};
use crate::{clock::Timestamp, event::EventId};

/// The endpoints of all tenants, as operators see them.
#[async_trait]
pub trait EndpointOverview: Send + Sync {
    /// Lists endpoints by id, each with its health since a time. The health is computed from the newest
    /// [`ENDPOINT_STATUS_ATTEMPTS`](crate::limits::ENDPOINT_STATUS_ATTEMPTS) attempts, and deliveries
    /// are counted up to [`ENDPOINT_STATUS_COUNTED`](crate::limits::ENDPOINT_STATUS_COUNTED).
    async fn endpoint_statuses(
        &self,
        actor: &Actor,
        filter: &EndpointFilter,
        since: Timestamp,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<ListedEndpoint>, AdminError>;

    /// The tenant of an endpoint.
    ///
    /// # Errors
    /// `NotFound` if there is no such endpoint that the actor may see.
    async fn endpoint_tenant(&self, actor: &Actor, id: &str) -> Result<String, AdminError>;

    /// Lists deliveries that wait for an endpoint of a tenant, those that are due first, at most
    /// `limit`.
    async fn endpoint_waiting(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        limit: usize,
    ) -> Result<Vec<WaitingDelivery>, AdminError>;

    /// Lists the endpoints of a tenant that have received or tried an event, or for which it waits, by
    /// id. Up to [`ENDPOINT_TRACED`](crate::limits::ENDPOINT_TRACED) endpoints are looked at. A
    /// successful first attempt that was not logged is not known.
    async fn endpoint_traces(
        &self,
        actor: &Actor,
        tenant: &str,
        event: EventId,
    ) -> Result<Vec<EndpointTrace>, AdminError>;

    /// The endpoints that need attention: those that are disabled, and the backlogs of those that are
    /// not. An actor of a tenant gets no backlogs.
    async fn endpoint_attention(&self, actor: &Actor) -> Result<EndpointAttention, AdminError>;
}

/// Which endpoints are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointFilter {
    /// Only those of this tenant.
    pub tenant: Option<String>,
    /// Only those in this state.
    pub state: Option<EndpointStatus>,
    /// Only those whose id or description contains this text.
    pub text: Option<String>,
}

/// An endpoint in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedEndpoint {
    /// The id.
    pub id: String,
    /// The tenant.
    pub tenant: String,
    /// The URL that events are posted to.
    pub url: String,
    /// A description for people.
    pub description: String,
    /// Why it receives no events; `None` if it is enabled.
    pub disabled_reason: Option<String>,
    /// When a relay probes it next; `None` if it is not probed.
    pub next_probe_at: Option<Timestamp>,
    /// Why it is slowed; `None` if it is not.
    pub slowed_reason: Option<String>,
    /// The number of attempts that have failed since the last success.
    pub failures: u32,
    /// Its health.
    pub health: EndpointHealth,
}

impl ListedEndpoint {
    /// The state.
    pub const fn state(&self) -> EndpointStatus {
        EndpointStatus::of(self.disabled_reason.is_some(), self.slowed_reason.is_some())
    }
}

/// A delivery that waits for an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingDelivery {
    /// The id of the event.
    pub event_id: String,
    /// The type of the event.
    pub kind: String,
    /// The number of attempts so far.
    pub attempts: u32,
    /// When the next attempt is due.
    pub next_at: Timestamp,
    /// When the delivery was queued.
    pub created_at: Timestamp,
    /// The error of the last attempt, in one line.
    pub last_error: Option<String>,
}

/// The delivery of an event to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointTrace {
    /// The id of the endpoint.
    pub endpoint: String,
    /// Whether the endpoint receives nothing.
    pub is_disabled: bool,
    /// The state of the delivery: `waiting`, `delivered` or `failed`.
    pub state: String,
    /// The number of attempts so far.
    pub attempts: u32,
    /// When the next attempt is due.
    pub next_at: Option<Timestamp>,
    /// When the last attempt in the log started.
    pub tried_at: Option<Timestamp>,
    /// The status code of its response.
    pub status: Option<u16>,
    /// The error of the last attempt, in one line.
    pub error: Option<String>,
}

/// The endpoints that need attention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointAttention {
    /// The number of disabled endpoints.
    pub disabled: u64,
    /// Those that were disabled last, the newest first, up to
    /// [`ENDPOINT_ATTENTION`](crate::limits::ENDPOINT_ATTENTION).
    pub newest_disabled: Vec<DisabledEndpoint>,
    /// Enabled endpoints for which deliveries wait, the highest number first, up to
    /// [`ENDPOINT_BACKLOGS`](crate::limits::ENDPOINT_BACKLOGS).
    pub backlogs: Vec<WaitingEndpoint>,
}

/// A disabled endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisabledEndpoint {
    /// The id.
    pub id: String,
    /// The tenant.
    pub tenant: String,
    /// Why it receives no events.
    pub reason: String,
    /// When it was disabled.
    pub at: Timestamp,
}

/// An endpoint for which deliveries wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingEndpoint {
    /// The id.
    pub id: String,
    /// The tenant.
    pub tenant: String,
    /// The number of deliveries, up to
    /// [`ENDPOINT_STATUS_COUNTED`](crate::limits::ENDPOINT_STATUS_COUNTED).
    pub waiting: u64,
}
