//! Trial of a filter: which of the stored events it matches.
//!
//! The newest events come first. A trial ends after a number of events or after
//! [`FILTER_TRIAL`](crate::limits::FILTER_TRIAL), and can be continued from there. It changes nothing.

use std::sync::Arc;

use serde::Serialize;

use super::{
    Actor, Admin, AdminError, EventFilter, EventSummary,
    trying::{MatchResult, StoredEvents, try_each},
};
use crate::{
    clock::Timestamp, event::Event, filter::Filter, limits::FILTER_TRIAL_EVENTS, places::Place,
};

/// Number of events that are listed at once.
const PAGE: usize = 50;

/// The result of trying a filter on stored events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FilterTrial {
    /// The number of events on which the filter was tried.
    pub tried: u64,
    /// The number of events that match.
    pub matched: u64,
    /// The number of events that do not match because the filter looks at their payload, which is
    /// not JSON or could not be decrypted.
    pub unreadable: u64,
    /// The events, the newest first.
    pub items: Vec<TriedEvent>,
    /// The value of `before` with which the trial continues; absent after the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An event on which a filter was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TriedEvent {
    /// The position in the outbox.
    pub position: i64,
    /// The event id.
    pub id: String,
    /// The event type.
    #[serde(rename = "type")]
    pub kind: String,
    /// When the event was created.
    pub created_at: Timestamp,
    /// Whether the event matches.
    pub matches: bool,
    /// The place in the filter of the first condition that does not hold, such as `/amount.$gte`;
    /// absent if the event matches, or if its payload cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_at: Option<String>,
}

/// Tries a filter on at most `limit` of the stored events that `events` selects. The trial has a place if their
/// number is limited. Work that has begun keeps it until it ends, also if the trial is dropped.
///
/// # Errors
/// Fails if the events cannot be listed or read.
pub async fn try_filter(
    store: &dyn Admin,
    actor: &Actor,
    filter: &Filter,
    events: &EventFilter,
    before: Option<&str>,
    limit: usize,
    place: Option<&Arc<Place>>,
) -> Result<FilterTrial, AdminError> {
    let events = StoredEvents {
        filter: events,
        before,
        limit: limit.clamp(1, FILTER_TRIAL_EVENTS),
        page: PAGE,
    };
    let filter = filter.clone();
    let work = move |event: &Event| MatchResult::from(filter.apply(event));
    let mut trial = FilterTrial::default();
    let next = try_each(store, actor, events, place, work, |summary, verdict| {
        trial.add(summary, verdict);
        // The results have no bodies, so only their number is limited.
        0
    });
    let next = next.await?;
    Ok(FilterTrial { next, ..trial })
}

impl FilterTrial {
    fn add(&mut self, event: EventSummary, verdict: MatchResult) {
        self.tried += 1;
        self.matched += u64::from(verdict.matches);
        self.unreadable += u64::from(verdict.is_unreadable);
        self.items.push(TriedEvent {
            position: event.position,
            id: event.id,
            kind: event.kind,
            created_at: event.created_at,
            matches: verdict.matches,
            fails_at: verdict.fails_at,
        });
    }
}
