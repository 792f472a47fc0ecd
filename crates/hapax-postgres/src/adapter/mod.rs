//! Keys, events and messages in a transaction that the service has opened with its own driver.
//!
//! There is one module for each driver, with the same six functions:
//! [`claim`](tokio_postgres::claim),
//! `complete` and `release` a key, `emit` an event, `accept` a message and record that it is
//! `processed`. Each is one statement in the given transaction; none begins or commits it. They write
//! the same rows as the store, so a service can use both for the same keys.
//!
//! With the feature `sqlx`, the module `sqlx` also has a store for the layer of `hapax-http`, which
//! opens the transaction itself.
//!
//! The relay of this node reads such events at its next poll, or when the service notifies it with
//! [`Postgres::notifier`](crate::Postgres::notifier) after its commit.

pub mod tokio_postgres;
#[cfg(feature = "sqlx")]
pub mod sqlx;

use std::{str::FromStr, time::Duration};

use bytes::Bytes;
use hapax::{
    Random, Timestamp,
    event::{EventId, Headers, NewEvent, Payload},
    idempotency::{Claim, StoredResponse, Taken},
    inbox::Acceptance,
    key::Tenant,
    limits::{RETENTION_MAX, WAIT},
    outbox::{EventCheck, EventError, build_event},
    store::{ClaimOutcome, StoreError},
};

use crate::error::corrupt;

/// Whose an event is, and what every event of its request carries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin<'a> {
    /// Whose it is; that of the claim that is open in the transaction when absent.
    pub tenant: Option<&'a Tenant>,
    /// Headers, over which the event's own win.
    pub context: Option<&'a Headers>,
    /// The check of the event; the settings of a store do not apply here.
    pub check: Option<&'a EventCheck>,
}

impl<'a> From<&'a Claim> for Origin<'a> {
    fn from(claim: &'a Claim) -> Self {
        Self {
            tenant: Some(&claim.scope.tenant),
            context: Some(&claim.context),
            check: None,
        }
    }
}

/// How long a claim waits for another transaction of the same key, in seconds.
const WAIT_SECS: f64 = WAIT.as_secs_f64();

/// Retention of the response, in seconds.
fn retention(claim: &Claim) -> f64 {
    claim.retention.min(RETENTION_MAX).as_secs_f64()
}

/// A row of `contract/claim`.
struct ClaimRow {
    outcome: String,
    status: Option<i32>,
    headers: Option<String>,
    body: Option<Vec<u8>>,
    fresh_for: Option<f64>,
}

impl ClaimRow {
    fn read(self) -> Result<ClaimOutcome<()>, StoreError> {
        Ok(ClaimOutcome::Taken(match self.outcome.as_str() {
            "open" => return Ok(ClaimOutcome::Open(())),
            "mismatch" => Taken::Mismatch,
            "in_progress" => Taken::InProgress,
            "gone" => Taken::Gone,
            "replay" => {
                let fresh_for = stands(self.fresh_for.unwrap_or_default());
                let status = self.status.and_then(|it| u16::try_from(it).ok());
                let status = status.ok_or_else(|| corrupt("stored response: its status"))?;
                let headers = pairs(self.headers.as_deref().unwrap_or("[]"))?;
                let body = self.body.unwrap_or_default().into();
                Taken::Replay {
                    response: StoredResponse {
                        status,
                        headers,
                        body,
                    },
                    fresh_for,
                }
            }
            other => return Err(corrupt(format!("outcome of a claim: {other:?}"))),
        }))
    }
}

fn stands(secs: f64) -> Duration {
    Duration::try_from_secs_f64(secs).unwrap_or_default()
}

/// The headers of a response as pairs; each byte of a value is one character of Latin-1.
fn headers(response: &StoredResponse) -> String {
    let text = |value: &Bytes| value.iter().copied().map(char::from).collect::<String>();
    let pairs = response
        .headers
        .iter()
        .map(|(name, value)| (name, text(value)));
    let pairs: Vec<_> = pairs.collect();
    serde_json::to_string(&pairs).expect("texts can be written as JSON")
}

/// Reads back what [`headers`] wrote.
fn pairs(text: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
    let pairs: Vec<(String, String)> = serde_json::from_str(text)
        .map_err(|error| corrupt(format!("headers of a stored response: {error}")))?;
    let bytes = |value: String| {
        let bytes = value.chars().map(|it| u8::try_from(u32::from(it)));
        bytes.collect::<Result<Vec<u8>, _>>().map(Bytes::from)
    };
    let pairs = pairs
        .into_iter()
        .map(|(name, value)| Ok((name, bytes(value)?)));
    pairs
        .collect::<Result<_, std::num::TryFromIntError>>()
        .map_err(|_| corrupt("headers of a stored response: they are not Latin-1"))
}

/// An event in the words of `contract/emit`.
struct Emission {
    event: NewEvent,
    tenant: Option<Tenant>,
    headers: String,
}

impl Emission {
    /// Refuses what could not be carried before the database does: an error of the database would
    /// doom the transaction.
    fn of(mut event: NewEvent, origin: Origin<'_>) -> Result<Self, StoreError> {
        if event.headers.contains_key("content-type") {
            return Err(StoreError::Event(EventError::Malformed {
                part: "header",
                problem: "content-type is the payload's own",
            }));
        }
        let none = Headers::new();
        let context = origin.context.unwrap_or(&none);
        // The database gives the event its id and its moment.
        let (at, random) = (Timestamp::from_millis(0), Random::new(|| 0));
        let sealed = build_event(event.clone(), origin.tenant, context, at, &random)?;
        if let Some(check) = origin.check {
            check.check(&sealed)?;
        }
        event.headers = sealed.headers;
        Ok(Self {
            headers: serde_json::to_string(&event.headers).expect("texts can be written as JSON"),
            tenant: sealed.tenant,
            event,
        })
    }

    fn tenant(&self) -> Option<&str> {
        self.tenant.as_ref().map(Tenant::as_str)
    }

    fn about(&self) -> (Option<&str>, Option<&str>) {
        let aggregate = self.event.aggregate.as_ref();
        aggregate
            .map(|it| (it.kind.as_str(), it.id.as_str()))
            .unzip()
    }

    fn available_at(&self) -> Option<i64> {
        self.event.available_at.map(Timestamp::as_millis)
    }

    /// The media type, if the payload is not JSON.
    fn content_type(&self) -> Option<&str> {
        match &self.event.payload {
            Payload::Json(_) => None,
            Payload::Binary { content_type, .. } => Some(content_type),
        }
    }
}

fn event_id(text: &str) -> Result<EventId, StoreError> {
    EventId::from_str(text).map_err(|error| corrupt(format!("id of an event: {error}")))
}

fn acceptance(word: &str) -> Result<Acceptance, StoreError> {
    match word {
        "first" => Ok(Acceptance::First),
        "duplicate" => Ok(Acceptance::Duplicate),
        "mismatch" => Ok(Acceptance::Mismatch),
        other => Err(corrupt(format!("acceptance of a message: {other:?}"))),
    }
}
