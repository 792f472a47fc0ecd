//! Endpoints of tenants as they are written in requests and on the command line.

use std::collections::BTreeMap;

use hapax::{
    Timestamp,
    admin::{AdminError, EndpointDraft, EndpointPatch, ReplayUnsent, read_time},
    sink::PayloadMode,
};
use hapax_sinks::settings::JsonSetting;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::destination::FilterSetting;

/// A new endpoint.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EndpointCreate {
    /// The tenant whose events it receives; that of the token if absent.
    pub(crate) tenant: Option<String>,
    /// The URL that events are posted to.
    pub(crate) url: String,
    /// A description for people.
    pub(crate) description: String,
    /// Patterns of event types, such as `order.*`; all types if empty.
    pub(crate) types: Vec<String>,
    /// Conditions on the content of events.
    #[schema(value_type = Option<Object>)]
    pub(crate) filter: Option<FilterSetting>,
    /// Headers of every request, by name. The values are secrets.
    pub(crate) headers: BTreeMap<String, String>,
    /// The parts of an event in the requests: its payload, or its id and a link.
    pub(crate) payload: PayloadMode,
    /// A template that makes the body of each request.
    #[schema(value_type = Option<Object>)]
    pub(crate) mapping: Option<JsonSetting>,
    /// The signing secret, `whsec_...`; a new one if absent.
    pub(crate) secret: Option<String>,
}

/// A change of an endpoint. What is absent or null stays as it is.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndpointUpdate {
    /// The version that the change is based on.
    pub(crate) version: i64,
    /// The URL. If it changes, headers have to be given again.
    #[serde(default)]
    pub(crate) url: Option<String>,
    /// The description.
    #[serde(default)]
    pub(crate) description: Option<String>,
    /// Patterns of event types.
    #[serde(default)]
    pub(crate) types: Option<Vec<String>>,
    /// Conditions on the content of events; an empty text removes them.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub(crate) filter: Option<FilterSetting>,
    /// All headers, by name.
    #[serde(default)]
    pub(crate) headers: Option<BTreeMap<String, String>>,
    /// The parts of an event in the requests: its payload, or its id and a link.
    #[serde(default)]
    pub(crate) payload: Option<PayloadMode>,
    /// A template that makes the body of each request; an empty text removes it.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub(crate) mapping: Option<JsonSetting>,
}

/// Which events that an endpoint never got are sent.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EndpointReplayMissing {
    /// Events that were created at this time or later; required.
    pub(crate) since: Option<String>,
    /// Events that were created before this time; the time at which the endpoint was created if absent.
    pub(crate) until: Option<String>,
    /// Where an earlier request has ended: its `next`.
    pub(crate) after: Option<String>,
    /// Whether the events are only counted.
    pub(crate) dry_run: bool,
}

impl EndpointReplayMissing {
    /// The request, with the bound of an endpoint's queue.
    pub(crate) fn ask(&self, waiting_max: u32, now: Timestamp) -> Result<ReplayUnsent, AdminError> {
        let since = read_time("since", self.since.as_deref())?;
        Ok(ReplayUnsent {
            since: since.ok_or_else(|| {
                let problem = "is missing: expected a time such as 2026-01-31T12:00:00Z";
                AdminError::invalid("since", problem)
            })?,
            until: read_time("until", self.until.as_deref())?,
            after: self.after.clone(),
            is_dry_run: self.dry_run,
            waiting_max,
            now,
        })
    }
}

impl From<EndpointCreate> for EndpointDraft {
    fn from(create: EndpointCreate) -> Self {
        Self {
            id: None,
            url: create.url,
            description: create.description,
            types: create.types,
            filter: create.filter.map(|it| it.text()),
            headers: create.headers,
            payload: create.payload,
            mapping: create.mapping.map(|it| it.text()),
            secret: create.secret,
        }
    }
}

impl From<EndpointUpdate> for EndpointPatch {
    fn from(update: EndpointUpdate) -> Self {
        Self {
            version: update.version,
            url: update.url,
            description: update.description,
            types: update.types,
            filter: update.filter.map(|it| it.text()),
            headers: update.headers,
            payload: update.payload,
            mapping: update.mapping.map(|it| it.text()),
        }
    }
}
