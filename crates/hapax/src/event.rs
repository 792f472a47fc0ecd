//! What the outbox carries.
//!
//! An event is written in the transaction of the effect it tells of, so it
//! exists exactly when the effect does. Its [`EventId`] stays the same however
//! often it is delivered: that is what every consumer dedupes by. Whether an
//! event fits its bounds is decided in [`crate::outbox`].

use std::{collections::BTreeMap, fmt, str::FromStr};

use bytes::Bytes;
use serde::Serialize;
use uuid::{Builder, Uuid};

use crate::{
    clock::{Random, Timestamp},
    key::Tenant,
};

/// The name of one event: a UUID v7.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(Uuid);

impl EventId {
    /// Makes the id of an event that happens now.
    pub fn mint(now: Timestamp, random: &Random) -> Self {
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        let bytes = random.bytes();
        let mut tail = [0; 10];
        tail.copy_from_slice(&bytes[..10]);
        Self(Builder::from_unix_timestamp_millis(millis, &tail).into_uuid())
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

/// What an event is about: the unit that order is kept within.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Aggregate {
    /// Its kind, such as `order`.
    pub kind: String,
    /// Which one, such as `ord_0190...`.
    pub id: String,
}

/// Small facts that travel with an event, by lower-case name.
pub type Headers = BTreeMap<String, String>;

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// JSON text, kept byte for byte so that a signature over it stays good.
    Json(String),
    /// Anything else.
    Binary {
        /// Its media type.
        content_type: String,
        /// Its bytes.
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

    /// The bytes as the emitter gave them.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Json(text) => text.as_bytes(),
            Self::Binary { bytes, .. } => bytes,
        }
    }
}

/// An event as a handler states it; the transaction adds id, tenant and context.
///
/// ```
/// # use hapax::event::NewEvent;
/// let event = NewEvent::json("order.created", &serde_json::json!({"amount": 500}))
///     .about("order", "ord_1")
///     .header("source", "checkout");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Its type, such as `order.created`: what destinations choose by.
    pub kind: String,
    /// What it is about.
    pub aggregate: Option<Aggregate>,
    /// Its place among the events of its aggregate, where the emitter counts them.
    pub sequence: Option<i64>,
    /// What it says.
    pub payload: Payload,
    /// The emitter's own headers.
    pub headers: Headers,
    /// The moment before which it must not be delivered.
    pub available_at: Option<Timestamp>,
}

impl NewEvent {
    /// An event of type `kind` whose payload is `value` as JSON.
    ///
    /// # Panics
    /// When `value` cannot be written as JSON (a map whose keys are no strings).
    pub fn json(kind: impl Into<String>, value: &impl Serialize) -> Self {
        let text = serde_json::to_string(value).expect("an event's payload can be written as JSON");
        Self::new(kind, Payload::Json(text))
    }

    /// An event of type `kind` that says `payload`.
    pub fn new(kind: impl Into<String>, payload: Payload) -> Self {
        Self {
            kind: kind.into(),
            aggregate: None,
            sequence: None,
            payload,
            headers: Headers::new(),
            available_at: None,
        }
    }

    /// Says what the event is about.
    #[must_use]
    pub fn about(mut self, kind: impl Into<String>, id: impl Into<String>) -> Self {
        self.aggregate = Some(Aggregate {
            kind: kind.into(),
            id: id.into(),
        });
        self
    }

    /// Gives the event its place within its aggregate.
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

    /// Holds the event back until `moment`, which lies between the years 1970 and 9999.
    #[must_use]
    pub fn available_at(mut self, moment: Timestamp) -> Self {
        self.available_at = Some(moment);
        self
    }
}

/// An event as the outbox holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What consumers dedupe by.
    pub id: EventId,
    /// Its type.
    pub kind: String,
    /// Whose it is.
    pub tenant: Option<Tenant>,
    /// What it is about.
    pub aggregate: Option<Aggregate>,
    /// Its place within its aggregate.
    pub sequence: Option<i64>,
    /// What it says.
    pub payload: Payload,
    /// Context and the emitter's own headers.
    pub headers: Headers,
    /// When its transaction wrote it.
    pub created_at: Timestamp,
    /// When it may first be delivered.
    pub available_at: Option<Timestamp>,
}

impl Event {
    /// The name of what order is kept within: the aggregate's kind and id, a line each.
    ///
    /// Neither can hold a line break, so no two aggregates share a key.
    pub fn order_key(&self) -> Option<String> {
        let Aggregate { kind, id } = self.aggregate.as_ref()?;
        Some(format!("{kind}\n{id}"))
    }

    /// About how many bytes it is stored in, and takes in memory: its payload, its headers and its
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
