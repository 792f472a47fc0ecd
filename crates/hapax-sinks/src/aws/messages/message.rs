//! Encoding of an event as a message: a body, attributes, and in a FIFO queue or topic a group.
//!
//! A message has at most ten attributes, so headers of the event other than the trace are only in
//! the body. An attribute that SQS would refuse is omitted. A body that it would refuse is an error.
//! Both are also true for SNS, because it discards what the queue of a subscription refuses.

use std::collections::BTreeMap;

use hapax::{
    event::{Aggregate, Event, Payload},
    sink::Offer,
};

use super::Encoding;
use crate::{
    api::Failure,
    aws::hash,
    format::context,
    limits::{MESSAGE_GROUP_BYTES_MAX, MESSAGES_BYTES},
};

/// The type of all attributes, in the words of the two services.
pub(crate) const STRING: &str = "String";

/// A message of a request.
#[derive(Debug)]
pub(crate) struct Message {
    /// The index of its offer, which identifies the message in the request and in the response.
    pub(crate) index: usize,
    pub(crate) body: String,
    /// Attributes of the type [`STRING`], by name.
    pub(crate) attributes: BTreeMap<&'static str, String>,
    /// The message group, in a FIFO queue or topic.
    pub(crate) group: Option<String>,
    /// The deduplication id, in a FIFO queue or topic.
    pub(crate) deduplication: Option<String>,
    /// The size as SQS and SNS count it.
    pub(crate) bytes: usize,
}

/// Why an event cannot be a message.
#[derive(Debug, thiserror::Error)]
enum NotAMessage {
    #[error("message of {0} bytes is larger than {most} bytes", most = MESSAGES_BYTES)]
    TooLarge(usize),
    #[error("{0} contains U+FFFE or U+FFFF, which are not allowed in a message")]
    Characters(String),
}

impl Message {
    /// Encodes the event of the offer with this index.
    pub(super) fn of(
        index: usize,
        offer: &Offer,
        encoding: &Encoding,
        source: &str,
    ) -> Result<Self, Failure> {
        let event = offer.event();
        let body = String::from_utf8(encoding.format.write(event, source));
        let body = body.expect("an encoded event is JSON, which is UTF-8");
        if !is_text(&body) {
            let part = refused_part(event);
            return Err(Failure::new("content", NotAMessage::Characters(part)));
        }
        let attributes = attributes(offer);
        let of_attributes = attributes.iter();
        let of_attributes =
            of_attributes.map(|(name, value)| name.len() + STRING.len() + value.len());
        let bytes = body.len() + of_attributes.sum::<usize>();
        if bytes > MESSAGES_BYTES {
            return Err(Failure::new("too_large", NotAMessage::TooLarge(bytes)));
        }
        let is_fifo = encoding.is_fifo;
        Ok(Self {
            index,
            body,
            attributes,
            group: is_fifo.then(|| group(event)),
            deduplication: is_fifo.then(|| event.id.to_string()),
            bytes,
        })
    }
}

fn attributes(offer: &Offer) -> BTreeMap<&'static str, String> {
    let event = offer.event();
    let mut attributes = BTreeMap::new();
    let mut insert = |name, value: &str| {
        if !value.is_empty() && is_text(value) {
            attributes.insert(name, value.to_owned());
        }
    };
    insert("id", &event.id.to_string());
    insert("type", &event.kind);
    insert("content_type", event.payload.content_type());
    if let Some(tenant) = &event.tenant {
        insert("tenant", tenant.as_str());
    }
    for (name, value) in context(offer) {
        insert(name, &value);
    }
    attributes
}

/// The group within which a FIFO queue or topic keeps the order: the aggregate. An event without an
/// aggregate is a separate group.
fn group(event: &Event) -> String {
    let Some(Aggregate { kind, id }) = &event.aggregate else {
        return event.id.to_string();
    };
    let group = format!("{kind}/{id}");
    // Both services accept letters, digits and punctuation of ASCII.
    let is_valid =
        group.len() <= MESSAGE_GROUP_BYTES_MAX && group.bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid {
        group
    } else {
        hash(group.as_bytes())
    }
}

/// The name of the part because of which SQS does not accept the body of an event.
fn refused_part(event: &Event) -> String {
    // A control character is escaped in JSON.
    let is_refused = |text: &str| text.contains(['\u{fffe}', '\u{ffff}']);
    if let Payload::Json(text) = &event.payload
        && is_refused(text)
    {
        return "payload".to_owned();
    }
    let mut headers = event.headers.iter();
    let header = headers.find(|(_, value)| is_refused(value));
    header.map_or_else(
        || "an attribute".to_owned(),
        |(name, _)| format!("header {name:?}"),
    )
}

/// Whether SQS accepts the text: the characters of XML 1.0.
fn is_text(text: &str) -> bool {
    let allowed = |char| match char {
        '\t' | '\n' | '\r' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        char => char >= ' ',
    };
    text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use hapax::{event::NewEvent, key::Tenant};

    use super::*;
    use crate::{format::TextFormat, sample::offer};

    #[test]
    fn a_message_has_the_envelope_as_attributes_and_the_order_key_as_group() {
        let new = NewEvent::json("order.created", &1)
            .about("order", "o-1")
            .header("correlation_id", "c-1")
            .header("other", "only in the body")
            .tenant(Tenant::new("acme").unwrap());
        let offer = offer(new);
        let id = offer.event().id.to_string();
        let message = encoded(&offer, true).unwrap();
        let expected = [
            ("content_type", "application/json"),
            ("correlation_id", "c-1"),
            ("id", id.as_str()),
            ("tenant", "acme"),
            ("type", "order.created"),
        ];
        let attributes = message.attributes.iter();
        let attributes: Vec<_> = attributes.map(|(name, value)| (*name, &**value)).collect();
        assert_eq!(attributes, expected);
        assert_eq!((message.index, message.body.as_str()), (3, "1"));
        assert_eq!(message.group.as_deref(), Some("order/o-1"));
        assert_eq!(message.deduplication, Some(id));
        let standard = encoded(&offer, false).unwrap();
        assert_eq!((standard.group, standard.deduplication), (None, None));
    }

    #[test]
    fn hostile_tenants_and_headers_stay_in_their_attributes() {
        let hostile = "a&TopicArn=b\"<Id>0</Id>\u{1f980}";
        let new = NewEvent::json("a", &1)
            .header("correlation_id", hostile)
            .tenant(Tenant::new(hostile).unwrap());
        let message = encoded(&offer(new), false).unwrap();
        assert_eq!(message.attributes["tenant"], hostile);
        assert_eq!(message.attributes["correlation_id"], hostile);
        // Neither service accepts these characters.
        let new = NewEvent::json("a", &1).tenant(Tenant::new("a\0\u{1}").unwrap());
        let message = encoded(&offer(new), false).unwrap();
        assert!(!message.attributes.contains_key("tenant"));
    }

    #[test]
    fn an_order_key_that_is_no_group_is_hashed_and_an_event_without_one_is_alone() {
        let of = |id: &str| group(offer(NewEvent::json("a", &1).about("order", id)).event());
        assert_eq!(of("a b").len(), 64);
        assert_eq!(of(&"x".repeat(200)).len(), 64);
        assert_ne!(of("a b"), of("a c"));
        let bare = offer(NewEvent::json("a", &1));
        assert_eq!(group(bare.event()), bare.event().id.to_string());
    }

    #[test]
    fn what_no_queue_accepts_is_refused_before_it_is_sent() {
        let refused = |payload: &str| encoded(&offer(NewEvent::json("a", &payload)), false);
        assert_eq!(refused("\u{ffff}").unwrap_err().error_type, "content");
        let large = "x".repeat(MESSAGES_BYTES);
        assert_eq!(refused(&large).unwrap_err().error_type, "too_large");
        assert!(refused("\u{7f} \u{fffd} \u{1f980}").is_ok());
    }

    #[test]
    fn a_body_that_no_queue_accepts_is_refused_by_the_part_that_is_wrong() {
        let check = |new: NewEvent, part: &str| {
            let offer = offer(new);
            let encoding = Encoding {
                format: TextFormat::Structured,
                is_fifo: false,
            };
            let refused = Message::of(3, &offer, &encoding, "/s").unwrap_err();
            let expected =
                format!("{part} contains U+FFFE or U+FFFF, which are not allowed in a message");
            assert_eq!(refused.cause.to_string(), expected);
        };
        check(NewEvent::json("a", &"\u{fffe}"), "payload");
        let header = NewEvent::json("a", &1).header("correlation_id", "\u{fffe}");
        check(header, "header \"correlation_id\"");
        let subject = NewEvent::json("a", &1).about("order", "\u{ffff}");
        check(subject, "an attribute");
    }

    #[test]
    fn an_attribute_that_no_queue_accepts_is_omitted() {
        let new = NewEvent::json("a", &1).header("correlation_id", "\u{fffe}");
        let message = encoded(&offer(new), false).unwrap();
        let names: Vec<_> = message.attributes.keys().copied().collect();
        assert_eq!(names, ["content_type", "id", "type"]);
    }

    fn encoded(offer: &Offer, is_fifo: bool) -> Result<Message, Failure> {
        let encoding = Encoding {
            format: TextFormat::Raw,
            is_fifo,
        };
        Message::of(3, offer, &encoding, "/s")
    }
}
