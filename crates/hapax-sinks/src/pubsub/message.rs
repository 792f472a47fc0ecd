//! Encoding of an event as a message: data, attributes and an ordering key.
//!
//! In binary mode the CloudEvents attributes are attributes with the prefix `ce-`, and the data is the
//! payload; the media type is in `content-type`. A message in another mode has `ce-id` and `ce-type`
//! too, by which subscribers deduplicate and filter. An attribute that is too long for Pub/Sub is
//! omitted.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hapax::{event::Aggregate, sink::Offer};
use serde::Serialize;

use crate::{
    format::{self, Format},
    limits::PUBSUB_ATTRIBUTE_BYTES_MAX,
};

/// Maximum length of the name of an attribute in bytes.
const NAME_BYTES_MAX: usize = 256;

/// A message of a request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    /// The body in base64.
    data: String,
    attributes: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering_key: Option<String>,
}

impl Message {
    /// Encodes the event of an offer.
    pub(super) fn of(offer: &Offer, format: Format, source: &str, is_ordered: bool) -> Self {
        let event = offer.event();
        let written = format.write(event, source);
        let mut attributes = BTreeMap::new();
        let mut insert = |name: String, value: &str| {
            if name.len() <= NAME_BYTES_MAX && value.len() <= PUBSUB_ATTRIBUTE_BYTES_MAX {
                attributes.insert(name, value.to_owned());
            }
        };
        for (name, value) in &written.attributes {
            insert(format!("ce-{name}"), value);
        }
        if format != Format::Binary {
            insert("ce-id".to_owned(), &event.id.to_string());
            insert("ce-type".to_owned(), &event.kind);
        }
        insert("content-type".to_owned(), &written.content_type);
        for (name, value) in format::context(offer) {
            insert(name.to_owned(), &value);
        }
        let aggregate = event.aggregate.as_ref().filter(|_| is_ordered);
        Self {
            data: STANDARD.encode(&written.body),
            attributes,
            ordering_key: aggregate.map(|Aggregate { kind, id }| format!("{kind}/{id}")),
        }
    }

    /// About the size of the message in a request.
    pub(super) fn bytes(&self) -> usize {
        let attributes = self.attributes.iter();
        let attributes: usize = attributes
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let key = self.ordering_key.as_ref().map_or(0, String::len);
        self.data.len() + attributes + key
    }
}

#[cfg(test)]
mod tests {
    use hapax::{event::NewEvent, key::Tenant};
    use serde_json::{Value, json};

    use super::*;
    use crate::sample::offer;

    #[test]
    fn a_message_has_the_payload_as_data_and_the_envelope_as_attributes() {
        let new = NewEvent::json("order.created", &1)
            .about("order", "o-1")
            .header("correlation_id", "c-1")
            .tenant(Tenant::new("acme \"&\u{1f980}").unwrap());
        let offer = offer(new);
        let id = offer.event().id.to_string();
        let message = encoded(&offer, Format::Binary, true);
        assert_eq!(message["data"], "MQ==");
        assert_eq!(message["orderingKey"], "order/o-1");
        let expected = json!({
            "ce-specversion": "1.0",
            "ce-id": id,
            "ce-source": "/s",
            "ce-type": "order.created",
            "ce-time": "2023-11-14T22:13:20.000Z",
            "ce-subject": "order/o-1",
            "ce-tenant": "acme \"&\u{1f980}",
            "ce-correlationid": "c-1",
            "content-type": "application/json",
            "correlation_id": "c-1",
        });
        assert_eq!(message["attributes"], expected);
    }

    #[test]
    fn a_message_without_attributes_of_its_own_has_the_id_and_the_type() {
        let offer = offer(NewEvent::json("order.created", &1).about("order", "o-1"));
        let id = offer.event().id.to_string();
        for (format, content_type) in [
            (Format::Structured, "application/cloudevents+json"),
            (Format::Raw, "application/json"),
        ] {
            let message = encoded(&offer, format, false);
            let expected = json!({
                "ce-id": id, "ce-type": "order.created", "content-type": content_type,
            });
            assert_eq!(message["attributes"], expected);
            assert_eq!(message.get("orderingKey"), None);
        }
        // An event without an aggregate has no order.
        let bare = self::offer(NewEvent::json("a", &1));
        assert_eq!(encoded(&bare, Format::Raw, true).get("orderingKey"), None);
    }

    #[test]
    fn an_attribute_that_is_too_long_is_omitted() {
        let long = "x".repeat(PUBSUB_ATTRIBUTE_BYTES_MAX + 1);
        let new = NewEvent::json("a", &1)
            .header("long", &*long)
            .header("short", "1");
        let message = encoded(&offer(new), Format::Binary, false);
        assert_eq!(message["attributes"].get("ce-long"), None);
        assert_eq!(message["attributes"]["ce-short"], "1");
    }

    fn encoded(offer: &Offer, format: Format, is_ordered: bool) -> Value {
        serde_json::to_value(Message::of(offer, format, "/s", is_ordered)).unwrap()
    }
}
