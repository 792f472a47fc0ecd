//! Events, as emitted by a handler and as stored in the outbox.
//!
//! An event is written in the transaction of the effect that it describes, so it exists if and only
//! if the effect does. Its [`EventId`] is the same for every delivery; consumers use it to detect
//! duplicates. [`crate::outbox`] checks the limits of an event.

use std::{collections::BTreeMap, fmt, str::FromStr};

use bytes::Bytes;
use serde::Serialize;
use uuid::{Builder, Uuid};

use crate::{
    clock::{Random, Timestamp},
    key::Tenant,
};

/// The id of an event, a UUID v7.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(Uuid);

impl EventId {
    /// Generates the id of an event that happens now.
    pub fn mint(now: Timestamp, random: &Random) -> Self {
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        let bytes = random.bytes();
        let mut tail = [0; 10];
        tail.copy_from_slice(&bytes[..10]);
        Self(Builder::from_unix_timestamp_millis(millis, &tail).into_uuid())
    }

    /// The time in the id, whose first 48 bits are milliseconds. An id that another program has
    /// created may contain any time.
    pub fn time(&self) -> Timestamp {
        let mut millis = [0; 8];
        millis[2..].copy_from_slice(&self.as_bytes()[..6]);
        Timestamp::from_millis(i64::from_be_bytes(millis))
    }

    /// Its 16 bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventId({})", self.0)
    }
}

impl FromStr for EventId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::from_str(text).map(Self)
    }
}

/// The object that an event is about. Order is kept within an aggregate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Aggregate {
    /// The kind of object, such as `order`.
    pub kind: String,
    /// The id of the object, such as `ord_0190...`.
    pub id: String,
}

/// Headers of an event, by lower-case name.
pub type Headers = BTreeMap<String, String>;

/// The content of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// JSON text. It is kept byte for byte, so that a signature over it stays valid.
    Json(String),
    /// Any other content.
    Binary {
        /// The media type.
        content_type: String,
        /// The bytes.
        bytes: Bytes,
    },
}

impl Payload {
    /// The media type of [`Payload::bytes`].
    pub fn content_type(&self) -> &str {
        match self {
            Self::Json(_) => "application/json",
            Self::Binary { content_type, .. } => content_type,
        }
    }

    /// The bytes as they were emitted.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Json(text) => text.as_bytes(),
            Self::Binary { bytes, .. } => bytes,
        }
    }
}

/// An event as a handler emits it. The transaction adds the id, the context, and its tenant unless
/// the event has one.
///
/// ```
/// # use hapax::event::NewEvent;
/// let event = NewEvent::json("order.created", &serde_json::json!({"amount": 500}))
///     .about("order", "ord_1")
///     .header("source", "checkout");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The type, such as `order.created`. Destinations select events by type.
    pub kind: String,
    /// The object that the event is about.
    pub aggregate: Option<Aggregate>,
    /// The number of the event within its aggregate, if the emitter counts them.
    pub sequence: Option<i64>,
    /// The content.
    pub payload: Payload,
    /// Headers set by the emitter.
    pub headers: Headers,
    /// The time before which the event must not be delivered.
    pub available_at: Option<Timestamp>,
    /// The tenant that the event belongs to, if it is not that of the transaction.
    pub tenant: Option<Tenant>,
}

impl NewEvent {
    /// Creates an event of the type `kind` with `value` as its JSON payload.
    ///
    /// # Panics
    /// Panics if `value` cannot be written as JSON (a map whose keys are not strings).
    pub fn json(kind: impl Into<String>, value: &impl Serialize) -> Self {
        let text = serde_json::to_string(value).expect("the payload must be serializable as JSON");
        Self::new(kind, Payload::Json(text))
    }

    /// Creates an event of the type `kind` with `payload`.
    pub fn new(kind: impl Into<String>, payload: Payload) -> Self {
        Self {
            kind: kind.into(),
            aggregate: None,
            sequence: None,
            payload,
            headers: Headers::new(),
            available_at: None,
            tenant: None,
        }
    }

    /// Sets the object that the event is about.
    #[must_use]
    pub fn about(mut self, kind: impl Into<String>, id: impl Into<String>) -> Self {
        self.aggregate = Some(Aggregate {
            kind: kind.into(),
            id: id.into(),
        });
        self
    }

    /// Sets the number of the event within its aggregate.
    #[must_use]
    pub fn sequence(mut self, sequence: i64) -> Self {
        self.sequence = Some(sequence);
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Delays the delivery until `moment`, which must be between the years 1970 and 9999.
    #[must_use]
    pub fn available_at(mut self, moment: Timestamp) -> Self {
        self.available_at = Some(moment);
        self
    }

    /// Sets the tenant that the event belongs to, instead of that of the transaction. The
    /// transaction of a received webhook has no tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }
}

/// An event as the outbox stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The id by which consumers detect duplicates.
    pub id: EventId,
    /// The type.
    pub kind: String,
    /// The tenant that the event belongs to.
    pub tenant: Option<Tenant>,
    /// The object that the event is about.
    pub aggregate: Option<Aggregate>,
    /// The number of the event within its aggregate.
    pub sequence: Option<i64>,
    /// The content.
    pub payload: Payload,
    /// The context of the request and the headers set by the emitter.
    pub headers: Headers,
    /// When the transaction wrote the event.
    pub created_at: Timestamp,
    /// When the event may be delivered at the earliest.
    pub available_at: Option<Timestamp>,
}

impl Event {
    /// The key within which order is kept: the kind and the id of the aggregate, on one line each.
    ///
    /// Neither can contain a line break, so different aggregates have different keys.
    pub fn order_key(&self) -> Option<String> {
        let Aggregate { kind, id } = self.aggregate.as_ref()?;
        Some(format!("{kind}\n{id}"))
    }

    /// The approximate size of the event in the store and in memory, in bytes: payload, headers and
    /// names.
    pub fn stored_bytes(&self) -> usize {
        let aggregate = self.aggregate.iter();
        let about: usize = aggregate.map(|it| it.kind.len() + it.id.len()).sum();
        let headers = self.headers.iter();
        let headers: usize = headers.map(|(name, value)| name.len() + value.len()).sum();
        let tenant = self.tenant.as_ref().map_or(0, |it| it.as_str().len());
        self.payload.bytes().len() + headers + self.kind.len() + tenant + about
    }
}
