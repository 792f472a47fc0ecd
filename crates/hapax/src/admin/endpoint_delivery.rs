//! Deliveries to the endpoints of tenants: attempts, health, and what is sent again.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use crate::{
    clock::Timestamp, delivery::AttemptOutcome, endpoint::RequestExcerpt, event::EventId, json,
    mask::Mask,
};

/// Which attempts are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointDeliveryFilter {
    /// Only attempts that failed (true) or succeeded (false).
    pub failed: Option<bool>,
    /// Only attempts at this event.
    pub event_id: Option<EventId>,
    /// Only attempts that started at this time or later.
    pub since: Option<Timestamp>,
}

/// An attempt at an endpoint, with the state of its delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndpointDelivery {
    /// The id of the event.
    pub event_id: String,
    /// The type of the event.
    #[serde(rename = "type")]
    pub kind: String,
    /// The state of the delivery now: `waiting`, `delivered` or `failed`.
    pub state: String,
    /// When the next attempt is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// The number of this attempt, starting at 1.
    pub attempt: u32,
    /// When the attempt started.
    pub started_at: Timestamp,
    /// How long the attempt took, in milliseconds.
    #[serde(rename = "duration_ms", serialize_with = "json::millis")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub duration: Duration,
    /// The outcome of the attempt.
    pub outcome: AttemptOutcome,
    /// The status code of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The error, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The headers of the request. Values of configured headers are `***`.
    pub request_headers: BTreeMap<String, String>,
    /// The beginning of the request's body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_body: Option<String>,
    /// The beginning of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
}

impl EndpointDelivery {
    /// Sets the request and the response from their columns.
    pub fn set_exchange(&mut self, request: &[u8], response: &[u8]) {
        let RequestExcerpt { headers, body } = RequestExcerpt::decode(request);
        self.request_headers = headers;
        self.request_body = shown(&body);
        self.response = shown(response);
    }

    /// Masks the bodies of the request and of the response.
    pub fn mask(&mut self, mask: &Mask) {
        for body in [&mut self.request_body, &mut self.response] {
            *body = body.as_ref().and_then(|text| mask.head(text.as_bytes()));
        }
    }
}

fn shown(body: &[u8]) -> Option<String> {
    (!body.is_empty()).then(|| String::from_utf8_lossy(body).into_owned())
}

/// The health of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndpointHealth {
    /// Attempts since the time, at most [`ENDPOINT_HEALTH_ATTEMPTS`](crate::limits::ENDPOINT_HEALTH_ATTEMPTS).
    pub attempts: u64,
    /// Those that succeeded.
    pub delivered: u64,
    /// The part of the attempts that succeeded, from 0 to 1; absent without attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<f64>,
    /// The duration in milliseconds within which 95 % of the attempts ended; absent without attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<u64>,
    /// Deliveries that wait.
    pub waiting: u64,
    /// Deliveries that have failed and are not retried.
    pub failed: u64,
    /// When the longest waiting delivery was queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Timestamp>,
}

impl EndpointHealth {
    /// Sets the success rate from the numbers of attempts.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the numbers are bounded")]
    pub fn with_rate(mut self) -> Self {
        let rate = || self.delivered as f64 / self.attempts as f64;
        self.success_rate = (self.attempts > 0).then(rate);
        self
    }
}

/// Which deliveries are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointReplay {
    /// That of one event, in any state.
    Event(EventId),
    /// Those that have failed at this time or later.
    FailedSince(Timestamp),
    /// Those that have failed in a time.
    Ended(ReplayEnded),
}

/// Which deliveries that have failed are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayEnded {
    /// Those that have failed at this time or later.
    pub since: Timestamp,
    /// Those that have failed before this time.
    pub until: Option<Timestamp>,
    /// Only those that were dropped because too many waited (true), or only those whose attempts have failed
    /// (false).
    pub dropped: Option<bool>,
}

impl ReplayEnded {
    /// All that have failed at a time or later.
    pub const fn since(since: Timestamp) -> Self {
        Self {
            since,
            until: None,
            dropped: None,
        }
    }
}
