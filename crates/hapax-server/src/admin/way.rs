//! One event as it is shown: its envelope, what it says, and its way to every destination.

use hapax::{delivery::Attempt, event::Headers, mask::Mask, outbox::OutboxEvent};
use hapax_postgres::operate::{destination_of, events::Trace};
use serde::Serialize;
use utoipa::ToSchema;

use super::{shown, view::moment};

/// One event, and where it stands at every destination.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EventView {
    /// Its position in the outbox.
    pub(crate) position: i64,
    /// Its own id.
    pub(crate) id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// What kind of thing it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_type: Option<String>,
    /// Which one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_id: Option<String>,
    /// Its place within its aggregate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sequence: Option<i64>,
    /// When it was created.
    pub(crate) created_at: String,
    /// Its headers.
    pub(crate) headers: Headers,
    /// The media type of its payload.
    pub(crate) content_type: String,
    /// Bytes of its payload.
    pub(crate) payload_bytes: u64,
    /// What it says, where it is JSON: its text, with the values of members replaced whose names say
    /// that they are nobody's business.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<String>,
    /// Where it stands.
    pub(crate) destinations: Vec<TraceView>,
}

impl EventView {
    /// An event with what is known of its way, masked, or as it is.
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
            headers: shown::headers(mask, event.headers.clone()),
            content_type: event.payload.content_type().to_owned(),
            payload_bytes: event.payload.bytes().len() as u64,
            payload: shown::payload(mask, &event.payload),
            destinations: traces
                .into_iter()
                .map(|trace| TraceView::of(trace, mask))
                .collect(),
        }
    }
}

/// Where an event stands at one destination.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TraceView {
    /// The destination.
    pub(crate) destination: String,
    /// Its part that carries the event.
    pub(crate) part: String,
    /// `unread`, `scheduled`, `retrying`, `blocked`, `dead`, `delivered`, `discarded`, or `passed`
    /// where it was read and no attempt is known: it is not routed there, or is on the wire.
    pub(crate) state: &'static str,
    /// When it falls due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_at: Option<String>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    /// Why it was discarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The position of the event that it waits behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) behind: Option<i64>,
    /// What is offered there in place of what the event says, where somebody edited that: masked, where
    /// it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) edited: Option<String>,
    /// Every attempt that is known.
    pub(crate) attempts: Vec<AttemptView>,
}

impl TraceView {
    fn of(it: Trace, mask: Option<&Mask>) -> Self {
        Self {
            destination: destination_of(&it.part).to_owned(),
            part: it.part,
            state: it.standing.as_str(),
            next_at: it.next_at.map(moment),
            last_error: it.last_error,
            reason: it.reason,
            behind: it.behind,
            edited: it.edited.as_ref().and_then(|it| shown::payload(mask, it)),
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
    /// Which one, from 1.
    pub(crate) number: u32,
    /// When it began.
    pub(crate) started_at: String,
    /// How long it took.
    pub(crate) duration_ms: u64,
    /// `delivered`, `unavailable`, `rejected`, `gone` or `interrupted`.
    pub(crate) outcome: &'static str,
    /// The far side's status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The beginning of the far side's response, masked where it is JSON.
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
            response: shown::response(mask, &it.response_head),
        }
    }
}
