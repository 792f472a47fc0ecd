//! The view of one event: envelope, payload, and its deliveries to all destinations.

use hapax::{delivery::Attempt, event::Headers, mask::Mask, outbox::OutboxEvent};
use hapax_postgres::admin::{destination_of, events::Trace};
use serde::Serialize;
use utoipa::ToSchema;

use super::{masked, view::moment};

/// An event and its state at every destination.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EventView {
    /// The position in the outbox.
    pub(crate) position: i64,
    /// The event id.
    pub(crate) id: String,
    /// The event type.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// The aggregate type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_type: Option<String>,
    /// The aggregate id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_id: Option<String>,
    /// The sequence number within the aggregate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sequence: Option<i64>,
    /// When the event was created.
    pub(crate) created_at: String,
    /// The headers.
    pub(crate) headers: Headers,
    /// The media type of the payload.
    pub(crate) content_type: String,
    /// The size of the payload in bytes.
    pub(crate) payload_bytes: u64,
    /// The payload as text, if it is JSON. The values of sensitive members are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<String>,
    /// The state at every destination.
    pub(crate) destinations: Vec<TraceView>,
}

impl EventView {
    /// An event with the state at every destination; masked if there is a mask.
    pub(super) fn of(it: &OutboxEvent, traces: Vec<Trace>, mask: Option<&Mask>) -> Self {
        let event = &it.event;
        let about = event.aggregate.as_ref();
        Self {
            position: it.position,
            id: event.id.to_string(),
            kind: event.kind.clone(),
            tenant: event.tenant.as_ref().map(|it| it.as_str().to_owned()),
            aggregate_type: about.map(|it| it.kind.clone()),
            aggregate_id: about.map(|it| it.id.clone()),
            sequence: event.sequence,
            created_at: moment(event.created_at),
            headers: masked::headers(mask, event.headers.clone()),
            content_type: event.payload.content_type().to_owned(),
            payload_bytes: event.payload.bytes().len() as u64,
            payload: masked::payload(mask, &event.payload),
            destinations: traces
                .into_iter()
                .map(|trace| TraceView::of(trace, mask))
                .collect(),
        }
    }
}

/// The state of an event at one destination.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TraceView {
    /// The name of the destination.
    pub(crate) destination: String,
    /// The partition that delivers the event.
    pub(crate) partition: String,
    /// `unread`, `scheduled`, `retrying`, `blocked`, `dead`, `delivered`, `discarded`, or `passed`
    /// if the event was read but no attempt is recorded: it is not routed to this destination, or
    /// is being sent.
    pub(crate) state: &'static str,
    /// When the next attempt is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_at: Option<String>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    /// Why the delivery was discarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The position of the event that has to be delivered first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) behind: Option<i64>,
    /// The edited payload that is delivered to this destination instead of the event's payload;
    /// masked if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) edited: Option<String>,
    /// The recorded attempts.
    pub(crate) attempts: Vec<AttemptView>,
}

impl TraceView {
    fn of(it: Trace, mask: Option<&Mask>) -> Self {
        Self {
            destination: destination_of(&it.partition).to_owned(),
            partition: it.partition,
            state: it.status.as_str(),
            next_at: it.next_at.map(moment),
            last_error: it.last_error,
            reason: it.reason,
            behind: it.behind,
            edited: it.edited.as_ref().and_then(|it| masked::payload(mask, it)),
            attempts: it
                .log
                .iter()
                .map(|attempt| AttemptView::of(attempt, mask))
                .collect(),
        }
    }
}

/// One attempt.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct AttemptView {
    /// The number of the attempt, starting at 1.
    pub(crate) number: u32,
    /// When the attempt started.
    pub(crate) started_at: String,
    /// The duration in milliseconds.
    pub(crate) duration_ms: u64,
    /// `delivered`, `unavailable`, `rejected`, `gone` or `interrupted`.
    pub(crate) outcome: &'static str,
    /// The status of the receiver's response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// The error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The beginning of the receiver's response; masked if it is JSON.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) response: String,
}

impl AttemptView {
    fn of(it: &Attempt, mask: Option<&Mask>) -> Self {
        Self {
            number: it.number,
            started_at: moment(it.started_at),
            duration_ms: u64::try_from(it.duration.as_millis()).unwrap_or(u64::MAX),
            outcome: it.outcome.as_str(),
            status: it.status,
            error: it.error.clone(),
            response: masked::response(mask, &it.response_head),
        }
    }
}
