//! Trial of a mapping: what it makes of stored events.
//!
//! The newest events come first. A trial ends after a number of results, after the number of events that a
//! trial of a filter visits, or after [`FILTER_TRIAL`](crate::limits::FILTER_TRIAL), and can be continued
//! from there. It changes nothing. The bodies are made of the masked payloads, because a mapping may give
//! values other names. Whether it can be applied is known from the payloads themselves.

use std::fmt;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    Actor, Admin, AdminError, EventFilter, EventSummary,
    trying::{Trying, cursor_at},
};
use crate::{
    clock::Timestamp,
    event::Event,
    limits::{FILTER_TRIAL_EVENTS, MAPPING_TRIAL_EVENTS},
    mapping::Mapping,
    mask::Mask,
};

/// A mapping, and the events on which it is tried.
pub struct TryMapping<'a> {
    /// The mapping.
    pub mapping: &'a Mapping,
    /// The stored events that are looked at.
    pub events: &'a EventFilter,
    /// Whether an event would be sent. The others are passed.
    pub takes: &'a (dyn Fn(&Event) -> bool + Sync),
    /// The values that are masked.
    pub mask: &'a Mask,
}

impl fmt::Debug for TryMapping<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryMapping")
            .field("mapping", self.mapping)
            .field("events", self.events)
            .finish_non_exhaustive()
    }
}

/// The result of trying a mapping on stored events.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MappingTrial {
    /// The number of events to which the mapping was applied.
    pub tried: u64,
    /// The number of events to which it could not be applied.
    pub failed: u64,
    /// The events, the newest first.
    pub items: Vec<MappedEvent>,
    /// The value of `before` with which the trial continues; absent after the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An event on which a mapping was tried.
#[derive(Clone, Debug, Serialize)]
pub struct MappedEvent {
    /// The position in the outbox.
    pub position: i64,
    /// The event id.
    pub id: String,
    /// The event type.
    #[serde(rename = "type")]
    pub kind: String,
    /// When the event was created.
    pub created_at: Timestamp,
    /// What the mapping makes of it, masked; absent if it cannot be applied, or if it is too large to be
    /// shown when it is masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Box<RawValue>>,
    /// Why the mapping cannot be applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Tries a mapping on at most `limit` of the stored events. It is meant for a command, because the mapping
/// is applied on the task of the caller.
///
/// # Errors
/// Fails if the events cannot be listed or read.
pub async fn try_mapping(
    store: &dyn Admin,
    actor: &Actor,
    ask: &TryMapping<'_>,
    before: Option<&str>,
    limit: usize,
) -> Result<MappingTrial, AdminError> {
    let limit = limit.clamp(1, MAPPING_TRIAL_EVENTS);
    let trying = Trying::begin(None);
    let mut visited = 0;
    let mut trial = MappingTrial {
        next: before.map(ToOwned::to_owned),
        ..MappingTrial::default()
    };
    loop {
        let page = limit - trial.items.len();
        let page = store.events(actor, ask.events, trial.next.as_deref(), page);
        let page = page.await?;
        for summary in page.items {
            if trying.is_over() {
                trial.next = Some(cursor_at(&summary));
                return Ok(trial);
            }
            visited += 1;
            // It may have been deleted meanwhile.
            let event = store.event_at(actor, summary.position).await?;
            let Some(event) = event.filter(|it| (ask.takes)(&it.event)) else {
                continue;
            };
            trial.add(summary, mapped(ask.mapping, &event.event, ask.mask));
        }
        trial.next = page.next;
        let is_done = trial.next.is_none()
            || trial.items.len() >= limit
            || visited >= FILTER_TRIAL_EVENTS
            || trying.is_over();
        if is_done {
            return Ok(trial);
        }
    }
}

/// What a mapping makes of an event, masked, and why it cannot be applied. If both are absent, the body cannot
/// be shown.
pub(super) fn mapped(
    mapping: &Mapping,
    event: &Event,
    mask: &Mask,
) -> (Option<Box<RawValue>>, Option<String>) {
    // A replacement has another length than the value, so that only the payload itself tells.
    if let Err(failure) = mapping.apply(event) {
        return (None, Some(failure.to_string()));
    }
    let body = mapping.apply_masked(event, mask);
    let body = body.and_then(|body| RawValue::from_string(body).ok());
    (body, None)
}

impl MappingTrial {
    fn add(
        &mut self,
        event: EventSummary,
        (body, failure): (Option<Box<RawValue>>, Option<String>),
    ) {
        self.tried += 1;
        self.failed += u64::from(failure.is_some());
        self.items.push(MappedEvent {
            position: event.position,
            id: event.id,
            kind: event.kind,
            created_at: event.created_at,
            body,
            failure,
        });
    }
}
