//! Encoding of an event as a record: topic, key and headers.
//!
//! In binary mode the CloudEvents attributes are headers with the prefix `ce_`, and the value is
//! the payload; the media type is in `content-type`. A raw record also has `ce_id` and `ce_type`.

use bytes::Bytes;
use hapax::sink::{Offer, SinkError};
use rdkafka::message::{Header, OwnedHeaders};

use crate::{
    format::{self, Format},
    limits::TOPIC_BYTES_MAX,
    pattern::Pattern,
};

/// The settings that all records of a sink share.
pub(super) struct Layout {
    pub(super) source: String,
    pub(super) topic: Pattern,
    pub(super) format: Format,
}

/// An encoded record.
pub(super) struct Record {
    pub(super) topic: String,
    /// Whether other events go to other topics.
    pub(super) has_own_topic: bool,
    pub(super) key: Option<String>,
    pub(super) headers: OwnedHeaders,
    pub(super) timestamp: i64,
    pub(super) body: Bytes,
}

impl Layout {
    /// Encodes an event. An event that cannot be encoded is rejected.
    pub(super) fn write(&self, offer: &Offer) -> Result<Record, SinkError> {
        let event = offer.event();
        let topic = self.topic.fill(event, |_, value| spelt(value));
        if !is_topic(&topic) {
            return Err(SinkError::rejected("topic", NoTopic(topic)));
        }
        let written = self.format.write(event, &self.source);
        let mut headers = OwnedHeaders::new();
        let mut add = |name: &str, value: &str| {
            let header = Header {
                key: name,
                value: Some(value),
            };
            let so_far = std::mem::replace(&mut headers, OwnedHeaders::new_with_capacity(0));
            headers = so_far.insert(header);
        };
        for (name, value) in &written.attributes {
            add(&format!("ce_{name}"), value);
        }
        if self.format != Format::Binary {
            add("ce_id", &event.id.to_string());
            add("ce_type", &event.kind);
        }
        add("content-type", &written.content_type);
        for (name, value) in format::context(offer) {
            add(name, &value);
        }
        let aggregate = event.aggregate.as_ref();
        Ok(Record {
            topic,
            has_own_topic: !self.topic.is_fixed(),
            key: aggregate.map(|aggregate| aggregate.id.clone()),
            headers,
            timestamp: event.created_at.as_millis(),
            body: written.body,
        })
    }
}

/// Whether this is a valid topic name.
pub(super) fn is_topic(name: &str) -> bool {
    (1..=TOPIC_BYTES_MAX).contains(&name.len())
        && name.chars().all(is_allowed)
        && !matches!(name, "." | "..")
}

/// The event has no valid topic.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a topic name: at most 249 of a-z, A-Z, 0-9, `.`, `_` and `-`")]
struct NoTopic(String);

/// The value of a placeholder, with `_` for characters that a topic cannot contain.
fn spelt(value: &str) -> String {
    value
        .chars()
        .map(|c| if is_allowed(c) { c } else { '_' })
        .collect()
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}
