//! Operations on endpoints that need their secrets: create, change, rotate, reveal and test.
//!
//! A store keeps the secrets of an endpoint encrypted and cannot read them. The program that has the
//! keys implements [`EndpointOperations`] above the store; the admin API, the command line and the
//! pages of customers use it. As in [`EndpointAdmin`](super::EndpointAdmin), the tenant is an argument
//! of every method, and an endpoint of another tenant is not found.

use std::{collections::BTreeMap, fmt, time::Duration};

use async_trait::async_trait;
use serde::Serialize;

use super::{Actor, AdminError, EndpointDelivery, TenantEndpoint};
use crate::sink::PayloadMode;

/// Operations on endpoints that need their secrets.
#[async_trait]
pub trait EndpointOperations: Send + Sync {
    /// Creates an endpoint.
    ///
    /// # Errors
    /// `Invalid` if requests can never be sent to it, and `Conflict` if the tenant has too many
    /// endpoints or the id of the draft exists.
    async fn create(
        &self,
        actor: &Actor,
        tenant: &str,
        draft: EndpointDraft,
    ) -> Result<EndpointWithSecret, AdminError>;

    /// Changes an endpoint if it is still at the version of the patch.
    async fn update(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        patch: EndpointPatch,
    ) -> Result<TenantEndpoint, AdminError>;

    /// Replaces the secret of an endpoint. The old one signs too for `overlap`, and earlier ones until
    /// their own ends. Without an overlap, all of them end at once.
    ///
    /// # Errors
    /// `Conflict` if the endpoint is not at `version`, if there is one, and if
    /// [`ENDPOINT_PREVIOUS_SECRETS`](crate::limits::ENDPOINT_PREVIOUS_SECRETS) old secrets still sign.
    async fn rotate(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        version: Option<i64>,
        overlap: Duration,
    ) -> Result<EndpointWithSecret, AdminError>;

    /// Returns the signing secret of an endpoint. The audit log has a line of it.
    async fn reveal(&self, actor: &Actor, tenant: &str, id: &str) -> Result<String, AdminError>;

    /// Disables an endpoint with a reason, or enables it without one.
    async fn set_disabled(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        reason: Option<String>,
    ) -> Result<TenantEndpoint, AdminError>;

    /// Sends a test event to an endpoint, once, whether it is enabled or not. The event is in no
    /// outbox, and the attempt is not in the log.
    async fn test(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
    ) -> Result<EndpointDelivery, AdminError>;
}

/// A new endpoint.
#[derive(Clone, Default)]
pub struct EndpointDraft {
    /// The id; a random one if absent. A form that is sent twice has the same one.
    pub id: Option<String>,
    /// The URL that events are posted to.
    pub url: String,
    /// A description for people.
    pub description: String,
    /// Patterns of event types, such as `order.*`; all types if empty.
    pub types: Vec<String>,
    /// A filter, as JSON; none if the text is empty.
    pub filter: Option<String>,
    /// Headers of every request, by name. The values are secrets.
    pub headers: BTreeMap<String, String>,
    /// The parts of an event in its requests.
    pub payload: PayloadMode,
    /// A mapping of the bodies, as JSON; none if the text is empty.
    pub mapping: Option<String>,
    /// The signing secret, `whsec_...`; a new one if absent.
    pub secret: Option<String>,
}

/// A change of an endpoint. What is absent stays as it is.
#[derive(Clone, Default)]
pub struct EndpointPatch {
    /// The version that the change is based on.
    pub version: i64,
    /// The URL. If it changes, headers have to be given again.
    pub url: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// Patterns of event types; all types if empty.
    pub types: Option<Vec<String>>,
    /// A filter, as JSON; an empty text removes it.
    pub filter: Option<String>,
    /// All headers, by name.
    pub headers: Option<BTreeMap<String, String>>,
    /// The parts of an event in its requests.
    pub payload: Option<PayloadMode>,
    /// A mapping of the bodies, as JSON; an empty text removes it.
    pub mapping: Option<String>,
}

/// An endpoint and its new secret.
#[derive(Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndpointWithSecret {
    /// The endpoint.
    pub endpoint: TenantEndpoint,
    /// The signing secret. The admin API does not show it again.
    pub secret: String,
}

impl fmt::Debug for EndpointDraft {
    /// Omits the URL, the headers and the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointDraft")
            .field("id", &self.id)
            .field("types", &self.types)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for EndpointPatch {
    /// Omits the URL and the headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointPatch")
            .field("version", &self.version)
            .field("types", &self.types)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for EndpointWithSecret {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointWithSecret")
            .field("endpoint", &self.endpoint.id)
            .finish_non_exhaustive()
    }
}
