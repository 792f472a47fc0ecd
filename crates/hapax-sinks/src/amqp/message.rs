//! Encoding of an event as a message: properties, headers and routing key.
//!
//! In binary mode the CloudEvents attributes are headers with the prefix `cloudEvents:`, and the
//! body is the payload. `traceparent`, `tracestate` and `correlation_id` are separate headers in
//! every mode.

use bytes::Bytes;
use hapax::sink::{Offer, SinkError};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, LongString, ShortString},
};

use crate::{
    format::{self, Format},
    pattern::Pattern,
};

const PREFIX: &str = "cloudEvents:";
/// The delivery mode in which the broker writes the message to disk before it confirms it.
const PERSISTENT: u8 = 2;
/// Size of the fixed fields of a content header in bytes: class, size, flags, time, mode.
const FIXED_BYTES: usize = 64;
/// Overhead of a header in bytes: lengths and type.
const FIELD_BYTES: usize = 6;

/// The settings that all messages of a sink share.
pub(super) struct Layout {
    pub(super) source: String,
    pub(super) exchange: ShortString,
    pub(super) routing_key: Pattern,
    pub(super) format: Format,
}

/// An encoded message.
pub(super) struct Message {
    pub(super) id: ShortString,
    pub(super) routing_key: ShortString,
    pub(super) properties: BasicProperties,
    /// Upper bound of the encoded properties in bytes. They have to fit into one frame.
    pub(super) properties_bytes: usize,
    pub(super) body: Bytes,
}

impl Layout {
    /// Encodes an event. An event that cannot be encoded is rejected.
    pub(super) fn write(&self, offer: &Offer) -> Result<Message, SinkError> {
        let event = offer.event();
        let routing_key = self.routing_key.fill(event, |_, value| value.to_owned());
        let routing_key = short("routing key", "routing_key", &routing_key)?;
        let written = self.format.write(event, &self.source);
        let id = short("event id", "event", &event.id.to_string())?;
        let kind = short("event type", "event", &event.kind)?;
        let content_type = short("content type", "content_type", &written.content_type)?;
        let mut bytes = FIXED_BYTES + id.as_str().len() + kind.as_str().len();
        bytes += written.content_type.len();

        let mut headers = FieldTable::default();
        let mut insert = |name: String, value: &str| {
            // A header name that is too long for AMQP is omitted.
            if let Ok(name) = ShortString::try_new(name) {
                bytes += FIELD_BYTES + name.as_str().len() + value.len();
                headers.insert(name, AMQPValue::LongString(LongString::from(value)));
            }
        };
        for (name, value) in &written.attributes {
            insert(format!("{PREFIX}{name}"), value);
        }
        for (name, value) in format::context(offer) {
            insert(name.to_owned(), &value);
        }
        let seconds = u64::try_from(event.created_at.as_secs()).unwrap_or(0);
        let properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_message_id(id.clone())
            .with_type(kind)
            .with_content_type(content_type)
            .with_timestamp(seconds)
            .with_headers(headers);
        Ok(Message {
            id,
            routing_key,
            properties,
            properties_bytes: bytes,
            body: written.body,
        })
    }
}

impl Layout {
    /// Converts the failure of an event into a failure of the destination if all events go to the
    /// same queue or use the same forbidden key. An exchange that routes by headers may have a
    /// queue for other events.
    pub(super) fn blamed(&self, error: SinkError) -> SinkError {
        let is_of_all = match error.error_type() {
            "unroutable" => self.exchange.as_str().is_empty(),
            "closed" => true,
            _ => false,
        };
        match error {
            SinkError::Declined {
                retry_after,
                error_type,
                receipt,
                source,
            } if is_of_all && self.routing_key.is_fixed() => SinkError::Unavailable {
                retry_after,
                error_type,
                receipt,
                source,
            },
            other => other,
        }
    }
}

/// A value is too long for AMQP.
#[derive(Debug, thiserror::Error)]
#[error("{what} has {bytes} bytes, but AMQP allows at most 255")]
struct TooLong {
    what: &'static str,
    bytes: usize,
}

fn short(
    what: &'static str,
    error_type: &'static str,
    text: &str,
) -> Result<ShortString, SinkError> {
    let bytes = text.len();
    let too_long = |_| SinkError::rejected(error_type, TooLong { what, bytes });
    ShortString::try_new(text).map_err(too_long)
}
