//! Subject of a condition: the value of an event that it looks at.
//!
//! A name that begins with a slash is a JSON Pointer (RFC 6901) into the payload. The other names
//! are those of fields of the event, so that a payload can have members with the same names.

use std::borrow::Cow;

use super::{
    decimal::Decimal,
    document::{Kind, Value},
    literal::Literal,
};
use crate::event::{Aggregate, Event};

/// The prefix of the names of headers.
const HEADERS: &str = "headers.";

/// A value of an event, by name.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    Type,
    Tenant,
    AggregateType,
    AggregateId,
    /// A header, by its name.
    Header(String),
    /// A value in the payload, by the steps of its JSON Pointer.
    Payload(Vec<String>),
}

/// An event to which a filter is applied.
pub(super) struct Facts<'d> {
    pub(super) event: &'d Event,
    /// The payload; `None` if the filter does not look at it.
    pub(super) payload: Option<Value<'d>>,
}

/// A value that was found in an event.
#[derive(Clone, Copy)]
pub(super) enum EventValue<'d> {
    /// A field of the event.
    Field(&'d str),
    /// A value in the payload.
    Json(Value<'d>),
}

impl Subject {
    /// Parses the name of a condition. The error continues a sentence that begins with the name.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        if let Some(pointer) = name.strip_prefix('/') {
            return Ok(Self::Payload(steps(pointer)?));
        }
        match name {
            "type" => return Ok(Self::Type),
            "tenant" => return Ok(Self::Tenant),
            "aggregate_type" => return Ok(Self::AggregateType),
            "aggregate_id" => return Ok(Self::AggregateId),
            _ => {}
        }
        let header = name.strip_prefix(HEADERS).filter(|name| !name.is_empty());
        header
            .map(|name| Self::Header(name.to_owned()))
            .ok_or_else(|| {
                let pointer = name.replace('.', "/");
                format!(
                    "must be a JSON Pointer into the payload, such as /{pointer}, or one of type, \
                     tenant, aggregate_type, aggregate_id and headers.NAME"
                )
            })
    }

    /// The value in an event; `None` if there is none.
    pub(super) fn find<'d>(&self, facts: &Facts<'d>) -> Option<EventValue<'d>> {
        let event = facts.event;
        let about = |part: fn(&Aggregate) -> &String| event.aggregate.as_ref().map(part);
        let field = match self {
            Self::Type => Some(&event.kind),
            Self::Tenant => {
                let tenant = event.tenant.as_ref()?;
                return Some(EventValue::Field(tenant.as_str()));
            }
            Self::AggregateType => about(|it| &it.kind),
            Self::AggregateId => about(|it| &it.id),
            Self::Header(name) => event.headers.get(name),
            Self::Payload(steps) => return facts.payload?.at(steps).map(EventValue::Json),
        };
        field.map(|text| EventValue::Field(text))
    }
}

impl<'d> EventValue<'d> {
    /// The string; `None` if the value is not a string.
    pub(super) fn text(self) -> Option<Cow<'d, str>> {
        match self {
            Self::Field(text) => Some(Cow::Borrowed(text)),
            Self::Json(value) => value.text(),
        }
    }

    /// The number; `None` if the value is not a number. A field of an event never is.
    pub(super) fn number(self) -> Option<Decimal<'d>> {
        match self {
            Self::Field(_) => None,
            Self::Json(value) => value.number(),
        }
    }

    /// Whether the value is equal to one of the filter.
    pub(super) fn equals(self, literal: &Literal) -> bool {
        match (self, literal) {
            (Self::Json(value), _) => literal.equals(value),
            (Self::Field(text), Literal::Text(expected)) => text == expected,
            (Self::Field(_), _) => false,
        }
    }

    /// Whether the value is an array with an item that is equal, or a string with this part.
    pub(super) fn contains(self, literal: &Literal) -> bool {
        match (self, literal) {
            (Self::Json(value), _) if value.kind() == Kind::Array => {
                value.items().any(|item| literal.equals(item))
            }
            (_, Literal::Text(part)) => {
                self.text().is_some_and(|text| text.contains(part.as_str()))
            }
            _ => false,
        }
    }
}

/// The steps of a JSON Pointer without its first slash. The error continues a sentence that begins with
/// the pointer.
pub(crate) fn steps(pointer: &str) -> Result<Vec<String>, String> {
    let steps = pointer.split('/').map(unescaped);
    let steps: Option<Vec<_>> = steps.collect();
    steps.ok_or_else(|| "is not a JSON Pointer: write ~ as ~0, and / in a name as ~1".to_owned())
}

/// A step of a JSON Pointer, in which `~1` stands for a slash and `~0` for a tilde.
fn unescaped(step: &str) -> Option<String> {
    let mut parts = step.split('~');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (sign, rest) = match (part.strip_prefix('0'), part.strip_prefix('1')) {
            (Some(rest), _) => ('~', rest),
            (_, Some(rest)) => ('/', rest),
            _ => return None,
        };
        text.push(sign);
        text.push_str(rest);
    }
    Some(text)
}
