//! Endpoints of tenants: created, listed, changed and deleted by operators.
//!
//! The tenant is an argument of every method, and the store selects rows by it. A caller that passes
//! the tenant of its user can neither read nor change what belongs to another one.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::Serialize;

use super::{
    Actor, AdminError, EndpointDelivery, EndpointDeliveryFilter, EndpointFilter, EndpointHealth,
    EndpointReplay, EndpointStatus, Page,
};
use crate::{
    clock::Timestamp,
    endpoint::{Endpoint, EndpointChange, EndpointColumns, EndpointState},
    filter::Filter,
    key::Tenant,
    limits::{
        ENDPOINT_DESCRIPTION_BYTES_MAX, ENDPOINT_OVERLAP_MAX, ENDPOINT_PATTERNS,
        ENDPOINT_URL_BYTES_MAX, EVENT_TYPE_BYTES_MAX,
    },
    mapping::Mapping,
    sink::PayloadMode,
};

/// The endpoints of tenants.
#[async_trait]
pub trait EndpointAdmin: Send + Sync {
    /// Creates an endpoint. It receives every event of the tenant whose transaction commits after
    /// this call, if the event matches.
    ///
    /// # Errors
    /// `Conflict` if the tenant has `per_tenant` endpoints.
    async fn create_endpoint(
        &self,
        actor: &Actor,
        tenant: &str,
        new: &NewEndpoint,
        per_tenant: u32,
    ) -> Result<TenantEndpoint, AdminError>;

    /// Lists endpoints by id, those of all tenants that the actor may see unless the filter says otherwise.
    async fn endpoints(
        &self,
        actor: &Actor,
        filter: &EndpointFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<TenantEndpoint>, AdminError>;

    /// Reads one endpoint, with its encrypted secrets.
    async fn endpoint(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
    ) -> Result<StoredEndpoint, AdminError>;

    /// Changes an endpoint if it is at `version`. `action` is the word for the audit log.
    ///
    /// # Errors
    /// `Conflict` if it is at another version.
    async fn change_endpoint(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        version: i64,
        action: EndpointAction,
        edit: &EndpointEdit,
    ) -> Result<TenantEndpoint, AdminError>;

    /// Deletes an endpoint with its secrets and its queue, which a relay deletes if it is long. The log
    /// of its attempts is kept until retention deletes it, and cannot be read any more.
    async fn delete_endpoint(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
    ) -> Result<(), AdminError>;

    /// Lists the attempts at an endpoint with request and response, the newest first, each with the
    /// state of its delivery.
    async fn endpoint_deliveries(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        filter: &EndpointDeliveryFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<EndpointDelivery>, AdminError>;

    /// The health of an endpoint: its attempts since a time, and what waits for it.
    async fn endpoint_health(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        since: Timestamp,
    ) -> Result<EndpointHealth, AdminError>;

    /// Sends deliveries again: one event, or those that have failed since a time.
    ///
    /// One call replays at most [`ENDPOINT_REPLAYED`](crate::limits::ENDPOINT_REPLAYED) deliveries.
    /// Returns their number. Deliveries that wait are left as they are, unless the event is named.
    async fn replay_endpoint(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        replay: &EndpointReplay,
    ) -> Result<u64, AdminError>;
}

/// An endpoint to be created.
#[derive(Clone, Debug, Default)]
pub struct NewEndpoint {
    /// The id, which no other endpoint has.
    pub id: String,
    /// The members that can be changed later.
    pub edit: EndpointEdit,
}

/// The members of an endpoint that can be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointEdit {
    /// The URL that events are posted to.
    pub url: String,
    /// A description for people.
    pub description: String,
    /// Patterns of event types, such as `order.*`; none means all types.
    pub types: Vec<String>,
    /// A filter, as JSON.
    pub filter: Option<String>,
    /// The names of the configured headers. Their values are secrets.
    pub headers: Vec<String>,
    /// The parts of an event in its requests.
    pub payload: PayloadMode,
    /// A mapping of the bodies, as JSON. It cannot be combined with a thin payload.
    pub mapping: Option<String>,
    /// The secrets, encrypted.
    pub sealed: Option<Vec<u8>>,
    /// Until when the last of the secrets before rotations signs too.
    pub previous_until: Option<Timestamp>,
    /// Why the endpoint receives no events; `None` if it is enabled.
    pub disabled_reason: Option<String>,
}

/// The name of a change of an endpoint in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointAction {
    /// Settings were changed.
    Change,
    /// The secret was replaced.
    Rotate,
    /// The endpoint was enabled. Its failures count from the beginning, as they do if its URL changes.
    Enable,
    /// The endpoint was disabled.
    Disable,
}

impl EndpointAction {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Rotate => "rotate",
            Self::Enable => "enable",
            Self::Disable => "disable",
        }
    }
}

impl EndpointEdit {
    /// Checks the fields. Returns the patterns as they are stored.
    ///
    /// # Errors
    /// `Invalid` with the first field that is not valid.
    pub fn check(&self) -> Result<Vec<String>, AdminError> {
        if self.url.is_empty() || self.url.len() > ENDPOINT_URL_BYTES_MAX || is_odd(&self.url) {
            let problem = format!("must be 1 to {ENDPOINT_URL_BYTES_MAX} bytes");
            return Err(AdminError::invalid("url", problem));
        }
        let description = &self.description;
        if description.len() > ENDPOINT_DESCRIPTION_BYTES_MAX || is_odd(description) {
            let problem = format!(
                "must be at most {ENDPOINT_DESCRIPTION_BYTES_MAX} bytes without control characters"
            );
            return Err(AdminError::invalid("description", problem));
        }
        let reason = self.disabled_reason.as_deref().unwrap_or_default();
        if reason.len() > ENDPOINT_DESCRIPTION_BYTES_MAX || is_odd(reason) {
            let problem = format!(
                "must be at most {ENDPOINT_DESCRIPTION_BYTES_MAX} bytes without control characters"
            );
            return Err(AdminError::invalid("reason", problem));
        }
        if self.types.len() > ENDPOINT_PATTERNS {
            let problem = format!("must be at most {ENDPOINT_PATTERNS} patterns");
            return Err(AdminError::invalid("types", problem));
        }
        let is_bad = |it: &String| it.is_empty() || it.len() > EVENT_TYPE_BYTES_MAX || is_odd(it);
        if self.types.iter().any(is_bad) {
            let problem = "must be patterns of 1 to 255 bytes, such as order.*";
            return Err(AdminError::invalid("types", problem));
        }
        if let Some(filter) = &self.filter {
            Filter::parse(filter).map_err(|error| {
                let field = match error.place.as_str() {
                    "" => "filter".to_owned(),
                    place => format!("filter.{place}"),
                };
                AdminError::invalid(field, error.problem)
            })?;
        }
        self.check_mapping()?;
        Ok(if self.types.is_empty() {
            vec!["*".to_owned()]
        } else {
            self.types.clone()
        })
    }

    fn check_mapping(&self) -> Result<(), AdminError> {
        let Some(mapping) = &self.mapping else {
            return Ok(());
        };
        if self.payload == PayloadMode::Thin {
            let problem = "has no payload to map: the payload is thin";
            return Err(AdminError::invalid("mapping", problem));
        }
        let compiled = Mapping::parse(mapping);
        compiled.map_err(|error| AdminError::invalid(error.setting(), error.problem))?;
        Ok(())
    }
}

fn is_odd(text: &str) -> bool {
    text.contains(char::is_control)
}

/// An endpoint, as operators and its tenant see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TenantEndpoint {
    /// The id.
    pub id: String,
    /// The tenant whose events it receives.
    pub tenant: String,
    /// The URL that events are posted to.
    pub url: String,
    /// A description for people.
    pub description: String,
    /// Patterns of event types.
    pub types: Vec<String>,
    /// The filter, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The names of the configured headers.
    pub headers: Vec<String>,
    /// The parts of an event in its requests: the payload, or the id and a link.
    pub payload: PayloadMode,
    /// The mapping of the bodies, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapping: Option<String>,
    /// Whether it receives events.
    pub enabled: bool,
    /// The state.
    pub state: EndpointStatus,
    /// Why it receives none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_reason: Option<String>,
    /// When it was disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_at: Option<Timestamp>,
    /// The number of attempts that have failed since the last success.
    pub failures: u32,
    /// When the first of them was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// Why it is slowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowed_reason: Option<String>,
    /// When the next attempt at it may begin, if it is slowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowed_until: Option<Timestamp>,
    /// When a relay probes it next. Only one that a relay has disabled because it failed is probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_probe_at: Option<Timestamp>,
    /// The number of probes that have failed since it was disabled.
    pub probes: u32,
    /// Until when the last of the secrets before rotations signs too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_secret_until: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// The operator that created it.
    pub created_by: String,
    /// When it was changed last.
    pub changed_at: Timestamp,
    /// The operator that changed it last.
    pub changed_by: String,
    /// The version, which a change has to name.
    pub version: i64,
}

/// An endpoint with its secrets, encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEndpoint {
    /// The endpoint.
    pub endpoint: TenantEndpoint,
    /// The secrets.
    pub sealed: Option<Vec<u8>>,
}

impl StoredEndpoint {
    /// The endpoint, if there is one.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn present(found: Option<Self>, id: &str) -> Result<Self, AdminError> {
        found.ok_or_else(|| AdminError::not_found(endpoint_object(id)))
    }

    /// A change starts with the endpoint as it is.
    pub fn edit(&self) -> EndpointEdit {
        let endpoint = &self.endpoint;
        EndpointEdit {
            url: endpoint.url.clone(),
            description: endpoint.description.clone(),
            types: endpoint.types.clone(),
            filter: endpoint.filter.clone(),
            headers: endpoint.headers.clone(),
            payload: endpoint.payload,
            mapping: endpoint.mapping.clone(),
            sealed: self.sealed.clone(),
            previous_until: endpoint.previous_secret_until,
            disabled_reason: endpoint.disabled_reason.clone(),
        }
    }

    /// The endpoint as a relay knows it, to send a test event.
    pub fn as_change(&self) -> EndpointChange {
        let endpoint = &self.endpoint;
        let types = serde_json::to_string(&endpoint.types).unwrap_or_default();
        let columns = EndpointColumns {
            id: endpoint.id.clone(),
            tenant: endpoint.tenant.clone(),
            url: endpoint.url.clone(),
            types,
            filter: endpoint.filter.clone(),
            payload_mode: endpoint.payload.as_str().to_owned(),
            mapping: endpoint.mapping.clone(),
            sealed: self.sealed.clone(),
            previous_until: endpoint.previous_secret_until,
            is_enabled: endpoint.enabled,
            is_deleted: false,
            is_catching_up: false,
            version: endpoint.version,
        };
        columns.read()
    }

    /// The endpoint as a relay knows it.
    ///
    /// # Errors
    /// `Conflict` if it cannot be read.
    pub fn readable(&self) -> Result<Arc<Endpoint>, AdminError> {
        match self.as_change().state {
            EndpointState::Present(endpoint) => Ok(endpoint),
            EndpointState::Unreadable(problem) => {
                let id = &self.endpoint.id;
                let what = format!("{} cannot be read: {problem}", endpoint_object(id));
                Err(AdminError::conflict(what))
            }
            EndpointState::Deleted => {
                Err(AdminError::not_found(endpoint_object(&self.endpoint.id)))
            }
        }
    }
}

/// The name of an endpoint in errors and in the audit log.
pub fn endpoint_object(id: &str) -> String {
    format!("endpoint {id}")
}

/// Checks that an actor may use a tenant, and that its name is well formed.
///
/// # Errors
/// `NotFound` if the actor is limited to another tenant, and `Invalid` if the name is not valid.
pub fn check_endpoint_tenant(actor: &Actor, tenant: &str) -> Result<(), AdminError> {
    if actor.tenant().is_some_and(|own| own != tenant) {
        return Err(AdminError::not_found("such tenant"));
    }
    check_tenant_name(tenant)
}

/// Checks the name of a tenant that gets an endpoint, a polling endpoint or a link to the portal.
///
/// # Errors
/// `Invalid` if it is empty or too long, or contains control characters.
pub fn check_tenant_name(tenant: &str) -> Result<(), AdminError> {
    if is_odd(tenant) || Tenant::new(tenant).is_err() {
        let problem = "must be 1 to 255 bytes without control characters";
        return Err(AdminError::invalid("tenant", problem));
    }
    Ok(())
}

/// The only tenant of a list: that of the actor, or else the one that was asked for.
///
/// # Errors
/// `NotFound` if the actor is limited to another tenant.
pub fn listed_tenant<'a>(
    actor: &'a Actor,
    asked: Option<&'a str>,
) -> Result<Option<&'a str>, AdminError> {
    if let Some(asked) = asked {
        check_endpoint_tenant(actor, asked)?;
        return Ok(Some(asked));
    }
    Ok(actor.tenant())
}

/// Checks how long an old secret signs.
///
/// # Errors
/// `Invalid` if it is more than [`ENDPOINT_OVERLAP_MAX`].
pub fn check_secret_overlap(overlap: Duration) -> Result<(), AdminError> {
    if overlap > ENDPOINT_OVERLAP_MAX {
        return Err(AdminError::invalid("overlap", "must be at most 30 days"));
    }
    Ok(())
}

/// The refusal of one endpoint too many.
pub fn too_many_endpoints(tenant: &str, per_tenant: u32) -> AdminError {
    AdminError::conflict(format!(
        "tenant {tenant} has {per_tenant} endpoints, which is the limit: delete one first"
    ))
}

/// The refusal of a change of another version.
pub fn endpoint_has_changed(id: &str, version: i64) -> AdminError {
    AdminError::conflict(format!(
        "{} is at version {version} now: read it again",
        endpoint_object(id)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(url: &str, types: &[&str]) -> EndpointEdit {
        EndpointEdit {
            url: url.to_owned(),
            types: types.iter().map(|it| (*it).to_owned()).collect(),
            ..EndpointEdit::default()
        }
    }

    #[test]
    fn the_fields_of_an_endpoint_are_checked() {
        assert_eq!(edit("https://a.example/", &[]).check().unwrap(), ["*"]);
        let types = ["order.*", "a"];
        assert_eq!(edit("https://a.example/", &types).check().unwrap(), types);
        for (url, types) in [
            ("", vec![]),
            ("https://a.example/\n", vec![]),
            ("https://a.example/", vec![""]),
            ("https://a.example/", vec!["a"; ENDPOINT_PATTERNS + 1]),
        ] {
            assert!(edit(url, &types).check().is_err(), "{url:?} {types:?}");
        }
        for reason in ["a\nb", &"a".repeat(ENDPOINT_DESCRIPTION_BYTES_MAX + 1)] {
            let disabled = EndpointEdit {
                disabled_reason: Some(reason.to_owned()),
                ..edit("https://a.example/", &[])
            };
            let error = disabled.check().unwrap_err().to_string();
            assert!(error.starts_with("reason"), "{error}");
        }
        let filtered = |filter: &str| EndpointEdit {
            filter: Some(filter.to_owned()),
            ..edit("https://a.example/", &[])
        };
        assert!(filtered(r#"{"/a": 1}"#).check().is_ok());
        let error = filtered(r#"{"/a": {"$gtt": 1}}"#).check().unwrap_err();
        assert!(error.to_string().starts_with("filter./a.$gtt"), "{error}");
    }

    #[test]
    fn the_mapping_of_an_endpoint_is_checked_and_has_a_payload() {
        let mapped = |mapping: &str, payload: PayloadMode| EndpointEdit {
            mapping: Some(mapping.to_owned()),
            payload,
            ..edit("https://a.example/", &[])
        };
        let mapping = r#"{"n": "$.data.n"}"#;
        assert!(mapped(mapping, PayloadMode::Full).check().is_ok());
        for (mapping, payload, start) in [
            (mapping, PayloadMode::Thin, "mapping has no payload"),
            ("{", PayloadMode::Full, "mapping is not valid JSON"),
            (
                r#"{"n": "$n"}"#,
                PayloadMode::Full,
                "mapping.n begins with $",
            ),
        ] {
            let error = mapped(mapping, payload).check().unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[test]
    fn an_operator_of_a_tenant_uses_that_tenant_alone() {
        let own = Actor::new("ann").of(Tenant::new("acme").unwrap());
        assert!(check_endpoint_tenant(&own, "acme").is_ok());
        assert!(check_endpoint_tenant(&own, "other").is_err());
        assert_eq!(listed_tenant(&own, None).unwrap(), Some("acme"));
        assert!(listed_tenant(&own, Some("other")).is_err());
        let ops = Actor::new("ops");
        assert_eq!(listed_tenant(&ops, None).unwrap(), None);
        assert_eq!(listed_tenant(&ops, Some("other")).unwrap(), Some("other"));
        assert!(check_endpoint_tenant(&ops, "").is_err());
    }

    #[test]
    fn the_name_of_a_tenant_has_no_control_characters() {
        let ops = Actor::new("ops");
        assert!(check_endpoint_tenant(&ops, "Müller & Söhne").is_ok());
        for name in ["a\nb", "a\0", "\u{1b}[31m", "a\u{7f}", "\u{85}"] {
            let error = check_endpoint_tenant(&ops, name).unwrap_err();
            assert!(
                error.to_string().contains("control characters"),
                "{name:?}: {error}"
            );
            assert!(listed_tenant(&ops, Some(name)).is_err(), "{name:?}");
        }
    }
}
