//! Events: lists by a filter, single events, and their status at every destination.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use serde::Serialize;

use super::{Actor, AdminError, Count, CountKind, Page, content, destination_of};
use crate::{
    clock::Timestamp,
    delivery::Attempt,
    event::{EventId, Headers, Payload},
    json,
    key::Tenant,
    mask::Mask,
    outbox::OutboxEvent,
};

/// Queries for events.
#[async_trait]
pub trait EventAdmin: Send + Sync {
    /// Lists the events that match a filter, the newest first: those whose position is less than `before`.
    async fn events(
        &self,
        actor: &Actor,
        filter: &EventFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<EventSummary>, AdminError>;

    /// Counts the events that match a filter. Without an id or a time it reads all events.
    async fn count_events(&self, actor: &Actor, filter: &EventFilter) -> Result<u64, AdminError>;

    /// Estimates how many events match a filter, at a cost that does not grow with their number.
    /// The result is exact if few events have to be read for it.
    ///
    /// By default it counts them all.
    async fn estimate_events(
        &self,
        actor: &Actor,
        filter: &EventFilter,
    ) -> Result<Count, AdminError> {
        let number = self.count_events(actor, filter).await?;
        let kind = CountKind::Exact;
        Ok(Count { number, kind })
    }

    /// Finds an event by its id. This may read all events.
    async fn find_event(
        &self,
        actor: &Actor,
        id: EventId,
    ) -> Result<Option<Arc<OutboxEvent>>, AdminError>;

    /// Finds an event by its id among the events nearest to the time in the id. It is not found if
    /// the id was created elsewhere or long before the event, or by a clock that was far off.
    async fn find_event_near(
        &self,
        actor: &Actor,
        id: EventId,
    ) -> Result<Option<Arc<OutboxEvent>>, AdminError>;

    /// Reads the event at a position.
    async fn event_at(
        &self,
        actor: &Actor,
        position: i64,
    ) -> Result<Option<Arc<OutboxEvent>>, AdminError>;

    /// The status of several events, by position, at every destination that a relay has opened.
    async fn traces(&self, positions: &[i64]) -> Result<HashMap<i64, Vec<Trace>>, AdminError>;

    /// The status of the event at a position.
    async fn trace(&self, position: i64) -> Result<Vec<Trace>, AdminError> {
        let mut found = self.traces(&[position]).await?;
        Ok(found.remove(&position).unwrap_or_default())
    }
}

/// A filter for events. A field that is absent matches every event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// A pattern over event types, such as `order.*`.
    pub kind: Option<String>,
    /// The tenant.
    pub tenant: Option<Tenant>,
    /// The type of the aggregate.
    pub aggregate_type: Option<String>,
    /// The id of the aggregate.
    pub aggregate_id: Option<String>,
    /// The id of the event.
    pub event_id: Option<EventId>,
    /// Created at or after this time.
    pub since: Option<Timestamp>,
    /// Created before this time.
    pub until: Option<Timestamp>,
    /// Only events with a higher position, so that a list need not reach back further. For lists,
    /// counts and estimates of events only; a job is refused.
    pub after: Option<i64>,
    /// Minimum number of attempts. For deliveries only.
    pub attempts_min: u32,
    /// Text that the last error contains, ignoring case. For deliveries only.
    pub error: Option<String>,
}

impl EventFilter {
    /// The tenant whose events match, for an actor: `Some(None)` for the events of all tenants, and
    /// `None` if the filter asks for the events of another tenant, which the actor may not see.
    pub fn tenant_of<'a>(&'a self, actor: &'a Actor) -> Option<Option<&'a Tenant>> {
        match (&actor.tenant, &self.tenant) {
            (Some(own), Some(other)) if own != other => None,
            (own, other) => Some(own.as_ref().or(other.as_ref())),
        }
    }

    /// The lowest position that an event can have to match.
    pub fn position_min(&self) -> i64 {
        self.after.map_or(i64::MIN, |after| after.saturating_add(1))
    }
}

/// An event in a list, without its payload and headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventSummary {
    /// The position in the outbox.
    pub position: i64,
    /// The event id.
    pub id: String,
    /// The event type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The aggregate type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_type: Option<String>,
    /// The aggregate id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_id: Option<String>,
    /// When the event was created.
    pub created_at: Timestamp,
    /// The earliest time of delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_at: Option<Timestamp>,
    /// The size of the stored payload in bytes.
    pub payload_bytes: u64,
}

/// An event and its status at every destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventDetail {
    /// The position in the outbox.
    pub position: i64,
    /// The event id.
    pub id: String,
    /// The event type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The aggregate type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_type: Option<String>,
    /// The aggregate id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_id: Option<String>,
    /// The sequence number within the aggregate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<i64>,
    /// When the event was created.
    pub created_at: Timestamp,
    /// The headers.
    pub headers: Headers,
    /// The media type of the payload.
    pub content_type: String,
    /// The size of the payload in bytes.
    pub payload_bytes: u64,
    /// The payload as text, if it is JSON. The values of sensitive members are replaced.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "json::payload"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub payload: Option<Payload>,
    /// The status at every destination.
    pub destinations: Vec<Trace>,
}

impl EventDetail {
    /// An event with its status at every destination; masked if there is a mask. Without a mask, a
    /// payload that is not JSON is shown in base64.
    pub fn of(found: &OutboxEvent, mut destinations: Vec<Trace>, mask: Option<&Mask>) -> Self {
        let event = &found.event;
        let about = event.aggregate.as_ref();
        let mut headers = event.headers.clone();
        let mut payload = Some(event.payload.clone());
        if let Some(mask) = mask {
            content::mask_headers(mask, &mut headers);
            payload = content::masked_payload(mask, &event.payload);
            for trace in &mut destinations {
                trace.mask(mask);
            }
        }
        Self {
            position: found.position,
            id: event.id.to_string(),
            kind: event.kind.clone(),
            tenant: event.tenant.as_ref().map(|it| it.as_str().to_owned()),
            aggregate_type: about.map(|it| it.kind.clone()),
            aggregate_id: about.map(|it| it.id.clone()),
            sequence: event.sequence,
            created_at: event.created_at,
            headers,
            content_type: event.payload.content_type().to_owned(),
            payload_bytes: event.payload.bytes().len() as u64,
            payload,
            destinations,
        }
    }

    /// The payload as it is shown: JSON, or base64 without a mask; `None` if it is hidden.
    pub fn payload_text(&self) -> Option<String> {
        self.payload.as_ref().map(json::payload_text)
    }
}

/// The status of an event at one destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Trace {
    /// The name of the destination.
    pub destination: String,
    /// The partition that delivers the event.
    pub partition: String,
    /// The status.
    #[serde(rename = "state")]
    pub status: DeliveryStatus,
    /// Attempts made since it was parked or replayed.
    #[serde(skip)]
    pub attempts: u32,
    /// When the next attempt is due, if it is scheduled or waits for a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Why the delivery was discarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The position of the earlier event of its order key that has to be delivered first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<i64>,
    /// When the status was last changed.
    #[serde(skip)]
    pub changed_at: Option<Timestamp>,
    /// The edited payload that is delivered to this destination instead of the event's payload;
    /// masked if it is JSON.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "json::payload"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub edited: Option<Payload>,
    /// The recorded attempts.
    #[serde(rename = "attempts")]
    pub log: Vec<Attempt>,
}

impl Trace {
    /// Masks the edited payload and the responses of the receiver.
    pub fn mask(&mut self, mask: &Mask) {
        let edited = self.edited.as_ref();
        self.edited = edited.and_then(|payload| content::masked_payload(mask, payload));
        for attempt in &mut self.log {
            attempt.response_head = content::masked_head(mask, &attempt.response_head);
        }
    }

    /// Removes from an event's deliveries what an actor of a tenant may not see: destinations that
    /// have made no attempt at the event, and the responses of receivers of destinations that are
    /// not among the tenant's `own`.
    pub fn hide(traces: &mut Vec<Self>, own: impl Fn(&str) -> bool) {
        traces.retain(|trace| trace.status.has_attempt());
        for trace in traces {
            if !own(destination_of(&trace.partition)) {
                for attempt in &mut trace.log {
                    attempt.response_head.clear();
                }
            }
        }
    }
}

/// The status of an event at a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum DeliveryStatus {
    /// The relay has not read it yet.
    Unread,
    /// It waits for the time at which it may be delivered.
    Scheduled,
    /// An attempt failed, and it will be offered again.
    Retrying,
    /// An earlier event of its order key blocks it.
    Blocked,
    /// It is a dead letter.
    Dead,
    /// It was delivered.
    Delivered,
    /// An operator discarded it.
    Discarded,
    /// The relay has read it, and no attempt is known: it is not routed to this destination, is
    /// being offered, or was delivered so long ago that the attempt was purged.
    Passed,
}

impl DeliveryStatus {
    /// The states in which a delivery has a row.
    pub const STORED: [Self; 6] = [
        Self::Scheduled,
        Self::Retrying,
        Self::Blocked,
        Self::Dead,
        Self::Delivered,
        Self::Discarded,
    ];

    /// The name in rows and responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Scheduled => "scheduled",
            Self::Retrying => "retrying",
            Self::Blocked => "blocked",
            Self::Dead => "dead",
            Self::Delivered => "delivered",
            Self::Discarded => "discarded",
            Self::Passed => "passed",
        }
    }

    /// Whether an attempt at the event, or a row for it, is known.
    pub const fn has_attempt(self) -> bool {
        !matches!(self, Self::Unread | Self::Passed)
    }

    /// The status of a delivery: the state of its row, or what is known without a row.
    pub fn of(state: Option<&str>, is_attempted: bool, is_read: bool) -> Self {
        match state.and_then(Self::parse) {
            Some(status) => status,
            None if is_attempted => Self::Delivered,
            None if is_read => Self::Passed,
            None => Self::Unread,
        }
    }

    /// Whether the next attempt is due at some time.
    pub const fn is_due(self) -> bool {
        matches!(self, Self::Scheduled | Self::Retrying)
    }

    /// The state of a row.
    pub fn parse(word: &str) -> Option<Self> {
        Self::STORED.into_iter().find(|it| it.as_str() == word)
    }

    /// Parses states that are separated by commas.
    ///
    /// # Errors
    /// `Invalid` for a word that is not a state in which deliveries have a row.
    pub fn parse_list(words: &str) -> Result<Vec<Self>, AdminError> {
        let words = words.split(',').map(str::trim);
        let words = words.filter(|word| !word.is_empty());
        let wrong = || {
            let all = "must be scheduled, retrying, blocked, dead, delivered or discarded";
            AdminError::invalid("state", all)
        };
        words
            .map(|word| Self::parse(word).ok_or_else(wrong))
            .collect()
    }
}
