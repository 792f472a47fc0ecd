//! Spans: open ones, and finished ones as they are exported.
//!
//! Only known fields are exported, so a field that is added by mistake or by a handler never leaves
//! the process.

use std::{
    fmt,
    num::NonZeroU64,
    time::{Duration, Instant, SystemTime},
};

use hapax::trace::{TRACEPARENT, TraceContext};
use tracing::field::{Field, Visit};

use crate::limits::TEXT_BYTES_MAX;

/// The fields that become attributes.
const KNOWN: [&str; 19] = [
    "attempt",
    "consumer",
    "correlation_id",
    "destination",
    "error_type",
    "event_id",
    "event_type",
    "http.request.method",
    "http.response.status_code",
    "idempotency.key_hash",
    "idempotency.outcome",
    "kind",
    "operation",
    "outcome",
    "saga",
    "sink",
    "source",
    "step",
    "direction",
];

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Switch(bool),
}

/// The kind of a span; the numbers are those of OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Internal = 1,
    Server = 2,
    Client = 3,
    Producer = 4,
    Consumer = 5,
}

/// The exported fields of a span.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SpanFields {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) is_error: bool,
    pub(crate) parent: Option<NonZeroU64>,
    pub(crate) attributes: Vec<(&'static str, Value)>,
}

/// An open span.
#[derive(Debug)]
pub(crate) struct OpenSpan {
    context: Option<TraceContext>,
    fields: SpanFields,
    started_at: SystemTime,
    begun: Instant,
}

/// A finished span.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndedSpan {
    pub(crate) context: TraceContext,
    pub(crate) fields: SpanFields,
    /// Nanoseconds since the Unix epoch.
    pub(crate) start_ns: u64,
    /// Nanoseconds since the Unix epoch.
    pub(crate) end_ns: u64,
}

impl OpenSpan {
    pub(crate) fn new(name: &str, started_at: SystemTime) -> Self {
        Self {
            context: None,
            fields: SpanFields {
                name: name.to_owned(),
                kind: Kind::default(),
                is_error: false,
                parent: None,
                attributes: Vec::new(),
            },
            started_at,
            begun: Instant::now(),
        }
    }

    /// Whether the span has a trace id and a span id.
    pub(crate) const fn is_traced(&self) -> bool {
        self.context.is_some()
    }

    pub(crate) fn end(self) -> Option<EndedSpan> {
        let since_epoch = self.started_at.duration_since(SystemTime::UNIX_EPOCH);
        let started = since_epoch.unwrap_or_default();
        Some(EndedSpan {
            context: self.context?,
            fields: self.fields,
            start_ns: nanos(started),
            end_ns: nanos(started + self.begun.elapsed()),
        })
    }

    fn put(&mut self, field: &Field, value: Value) {
        let Some(name) = KNOWN.iter().find(|known| **known == field.name()) else {
            return;
        };
        let attributes = &mut self.fields.attributes;
        match attributes.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => attributes.push((name, value)),
        }
    }

    fn text(&mut self, field: &Field, text: &str) {
        let fields = &mut self.fields;
        match field.name() {
            TRACEPARENT => self.context = TraceContext::parse(text),
            "parent_span_id" => {
                fields.parent = u64::from_str_radix(text, 16).ok().and_then(NonZeroU64::new);
            }
            "otel.name" => fields.name = short(text),
            "otel.kind" => fields.kind = Kind::named(text),
            "otel.status_code" => fields.is_error = text == "error",
            _ => self.put(field, Value::Text(short(text))),
        }
    }
}

fn is_exported(field: &Field) -> bool {
    let own = [
        TRACEPARENT,
        "parent_span_id",
        "otel.name",
        "otel.kind",
        "otel.status_code",
    ];
    KNOWN.contains(&field.name()) || own.contains(&field.name())
}

impl Visit for OpenSpan {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(
            field,
            Value::Integer(i64::try_from(value).unwrap_or(i64::MAX)),
        );
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::Switch(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Other fields are not formatted, because they may be large.
        if is_exported(field) {
            self.text(field, &format!("{value:?}"));
        }
    }
}

impl Kind {
    fn named(word: &str) -> Self {
        match word {
            "server" => Self::Server,
            "client" => Self::Client,
            "producer" => Self::Producer,
            "consumer" => Self::Consumer,
            _ => Self::Internal,
        }
    }
}

fn short(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
