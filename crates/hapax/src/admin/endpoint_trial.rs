//! Trial of the settings of an endpoint: which of the stored events of its tenant it would be sent, and
//! with which bodies.
//!
//! The newest events come first. A trial ends after a number of events, after
//! [`FILTER_TRIAL`](crate::limits::FILTER_TRIAL), or when its bodies have 1 MiB, and can be continued from
//! there. It changes nothing. The bodies are masked as in a trial of a mapping.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    Actor, Admin, AdminError, EndpointEdit, EventFilter, EventSummary, check_endpoint_tenant,
    mapping_trial::mapped,
    trying::{MatchResult, StoredEvents, try_each},
};
use crate::{
    clock::Timestamp,
    event::Event,
    filter::{Applied, Filter},
    key::Tenant,
    limits::ENDPOINT_TRIAL_EVENTS,
    mapping::Mapping,
    mask::Mask,
    places::Place,
    relay::Pattern,
};

/// Number of events that are listed at once. Each may have a large body.
const PAGE: usize = 5;
/// The URL of an endpoint of which only the other settings are checked.
const NO_URL: &str = "https://trial.example/";
/// The place of the first condition that does not hold, if it is the patterns of event types.
const TYPES: &str = "types";

/// The settings of an endpoint that are tried, as they are written, and the page of the trial.
#[derive(Clone, Copy, Debug)]
pub struct TryEndpoint<'a> {
    /// The tenant whose events are looked at.
    pub tenant: &'a str,
    /// Patterns of event types, such as `order.*`; none means all types.
    pub types: &'a [String],
    /// A filter, as JSON; none if it is empty.
    pub filter: Option<&'a str>,
    /// A mapping, as JSON; none if it is empty.
    pub mapping: Option<&'a str>,
    /// The values that are masked in bodies.
    pub mask: &'a Mask,
    /// `next` of the previous trial.
    pub before: Option<&'a str>,
    /// Maximum number of events, at most [`ENDPOINT_TRIAL_EVENTS`].
    pub limit: usize,
    /// The place of the trial, if their number is limited. Work that has begun keeps it until it ends, also if
    /// the trial is dropped.
    pub place: Option<&'a Arc<Place>>,
}

/// The result of trying the settings of an endpoint on stored events.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndpointTrial {
    /// The number of events on which the settings were tried.
    pub tried: u64,
    /// The number of events that match the types and the filter.
    pub matched: u64,
    /// The number of events that do not match because the filter looks at their payload, which is
    /// not JSON or could not be decrypted.
    pub unreadable: u64,
    /// The number of events that match, and to which the mapping cannot be applied.
    pub failed: u64,
    /// The events, the newest first.
    pub items: Vec<TriedDelivery>,
    /// The value of `before` with which the trial continues; absent after the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An event on which the settings of an endpoint were tried.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TriedDelivery {
    /// The position in the outbox.
    pub position: i64,
    /// The event id.
    pub id: String,
    /// The event type.
    #[serde(rename = "type")]
    pub kind: String,
    /// When the event was created.
    pub created_at: Timestamp,
    /// Whether the event matches the types and the filter.
    pub matches: bool,
    /// `types`, or the place in the filter of the first condition that does not hold, such as
    /// `/amount.$gte`; absent if the event matches, or if its payload cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_at: Option<String>,
    /// What the mapping makes of an event that matches, masked; absent without a mapping, if it cannot be
    /// applied, or if it is too large to be shown when it is masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Value>))]
    pub body: Option<Box<RawValue>>,
    /// Why the mapping cannot be applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Tries the settings of an endpoint on stored events of its tenant.
///
/// # Errors
/// `NotFound` if the actor is limited to another tenant, `Invalid` with the first setting that is not valid,
/// and fails if the events cannot be listed or read.
pub async fn try_endpoint(
    store: &dyn Admin,
    actor: &Actor,
    ask: &TryEndpoint<'_>,
) -> Result<EndpointTrial, AdminError> {
    let settings = Arc::new(Settings::read(actor, ask)?);
    let filter = EventFilter {
        tenant: Some(settings.tenant.clone()),
        ..EventFilter::default()
    };
    let events = StoredEvents {
        filter: &filter,
        before: ask.before,
        limit: ask.limit.clamp(1, ENDPOINT_TRIAL_EVENTS),
        page: PAGE,
    };
    let work = move |event: &Event| settings.make(event);
    let mut trial = EndpointTrial::default();
    let next = try_each(store, actor, events, ask.place, work, |summary, made| {
        trial.add(summary, made)
    });
    let next = next.await?;
    Ok(EndpointTrial { next, ..trial })
}

/// Settings of an endpoint, compiled.
struct Settings {
    tenant: Tenant,
    patterns: Vec<Pattern>,
    filter: Option<Filter>,
    mapping: Option<Mapping>,
    mask: Mask,
}

/// What the settings make of an event.
struct Made {
    verdict: MatchResult,
    body: Option<Box<RawValue>>,
    failure: Option<String>,
}

impl Settings {
    fn read(actor: &Actor, ask: &TryEndpoint<'_>) -> Result<Self, AdminError> {
        check_endpoint_tenant(actor, ask.tenant)?;
        let given = |text: Option<&str>| text.filter(|it| !it.is_empty()).map(str::to_owned);
        let edit = EndpointEdit {
            url: NO_URL.to_owned(),
            types: ask.types.to_vec(),
            filter: given(ask.filter),
            mapping: given(ask.mapping),
            ..EndpointEdit::default()
        };
        // The same errors as those of an endpoint with these settings.
        let patterns = edit.check()?;
        let tenant = Tenant::new(ask.tenant);
        let filter = edit.filter.as_deref().map(Filter::parse).transpose();
        let mapping = edit.mapping.as_deref().map(Mapping::parse).transpose();
        Ok(Self {
            tenant: tenant.map_err(|error| AdminError::invalid("tenant", error.to_string()))?,
            patterns: patterns.into_iter().map(Pattern::new).collect(),
            filter: filter.map_err(|error| AdminError::invalid("filter", error.to_string()))?,
            mapping: mapping.map_err(|error| AdminError::invalid("mapping", error.to_string()))?,
            mask: ask.mask.clone(),
        })
    }

    fn make(&self, event: &Event) -> Made {
        let verdict = MatchResult::from(self.apply(event));
        let mapping = self.mapping.as_ref().filter(|_| verdict.matches);
        let made = mapping.map(|mapping| mapped(mapping, event, &self.mask));
        let (body, failure) = made.unwrap_or_default();
        Made {
            verdict,
            body,
            failure,
        }
    }

    /// Whether an event matches. The types are compared first, as a relay does.
    fn apply(&self, event: &Event) -> Applied<'_> {
        if !self.patterns.iter().any(|it| it.matches(&event.kind)) {
            return Applied::Fails(TYPES);
        }
        let filter = self.filter.as_ref();
        filter.map_or(Applied::Matches, |filter| filter.apply(event))
    }
}

impl EndpointTrial {
    /// Adds an event. Returns the size of its body.
    fn add(&mut self, summary: EventSummary, made: Made) -> usize {
        let Made {
            verdict,
            body,
            failure,
        } = made;
        self.tried += 1;
        self.matched += u64::from(verdict.matches);
        self.unreadable += u64::from(verdict.is_unreadable);
        self.failed += u64::from(failure.is_some());
        let bytes = body.as_ref().map_or(0, |body| body.get().len());
        self.items.push(TriedDelivery {
            position: summary.position,
            id: summary.id,
            kind: summary.kind,
            created_at: summary.created_at,
            matches: verdict.matches,
            fails_at: verdict.fails_at,
            body,
            failure,
        });
        bytes
    }
}
