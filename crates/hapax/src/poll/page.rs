//! A page of events, and its JSON.
//!
//! The JSON is written by hand, because a payload that is JSON is copied byte for byte: a consumer
//! can verify a signature over it. Any other payload is in base64, with its media type.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::{
    event::{Event, Payload},
    outbox::OutboxEvent,
};

/// Bytes of an event's members besides its payload, for the size of the buffer.
const ENVELOPE_BYTES: usize = 320;

/// A page of events.
#[derive(Clone, Debug)]
pub struct Page {
    /// The events, in the order of the outbox within each aggregate. May be empty although there are
    /// more.
    pub events: Vec<Arc<OutboxEvent>>,
    /// The cursor after these events: what to commit, and where the next page begins.
    pub cursor: String,
    /// Whether there may be more events now.
    pub has_more: bool,
}

impl Page {
    /// The page as JSON: `{"data":[...],"cursor":"...","has_more":true}`.
    pub fn to_json(&self) -> Vec<u8> {
        let payloads = self.events.iter();
        let payloads = payloads.map(|it| it.event.payload.bytes().len() * 4 / 3);
        let bytes = payloads.map(|it| it + ENVELOPE_BYTES).sum::<usize>();
        let mut out = Vec::with_capacity(bytes + self.cursor.len() + ENVELOPE_BYTES);
        out.extend_from_slice(b"{\"data\":[");
        for (number, event) in self.events.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            push_event(&mut out, &event.event);
        }
        out.extend_from_slice(b"],\"cursor\":");
        push_text(&mut out, &self.cursor);
        let end = format!(",\"has_more\":{}}}", self.has_more);
        out.extend_from_slice(end.as_bytes());
        out
    }
}

/// One event as JSON, in the form that it has on a page.
pub fn event_to_json(event: &Event) -> Vec<u8> {
    let mut out = Vec::with_capacity(event.payload.bytes().len() * 4 / 3 + ENVELOPE_BYTES);
    push_event(&mut out, event);
    out
}

fn push_event(out: &mut Vec<u8>, event: &Event) {
    out.extend_from_slice(b"{\"id\":");
    push_text(out, &event.id.to_string());
    push_member(out, "type", &event.kind);
    push_member(out, "timestamp", &event.created_at.to_string());
    if let Some(tenant) = &event.tenant {
        push_member(out, "tenant", tenant.as_str());
    }
    if let Some(aggregate) = &event.aggregate {
        out.extend_from_slice(b",\"aggregate\":{\"type\":");
        push_text(out, &aggregate.kind);
        push_member(out, "id", &aggregate.id);
        out.push(b'}');
    }
    if let Some(sequence) = event.sequence {
        out.extend_from_slice(format!(",\"sequence\":{sequence}").as_bytes());
    }
    if let Some(at) = event.available_at {
        push_member(out, "available_at", &at.to_string());
    }
    match &event.payload {
        // A table source may contain what is not JSON. It must not break the page.
        Payload::Json(text) if serde_json::from_str::<IgnoredAny>(text).is_ok() => {
            out.extend_from_slice(b",\"data\":");
            out.extend_from_slice(text.as_bytes());
        }
        other => {
            push_member(out, "content_type", other.content_type());
            push_member(out, "data_base64", &BASE64_STANDARD.encode(other.bytes()));
        }
    }
    out.push(b'}');
}

fn push_member(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(b',');
    push_text(out, name);
    out.push(b':');
    push_text(out, value);
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(Value::from(text).to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        Random, Timestamp,
        event::{Headers, NewEvent},
        key::Tenant,
        outbox::build_event,
    };

    fn written(events: Vec<NewEvent>) -> String {
        let tenant = Tenant::new("ac\"me").unwrap();
        let at = Timestamp::from_millis(1_700_000_000_250);
        let events = events.into_iter().zip(1..).map(|(new, position)| {
            let random = Random::new(|| 7);
            let event = build_event(new, Some(&tenant), &Headers::new(), at, &random).unwrap();
            Arc::new(OutboxEvent { position, event })
        });
        let page = Page {
            events: events.collect(),
            cursor: "AQE".to_owned(),
            has_more: true,
        };
        String::from_utf8(page.to_json()).unwrap()
    }

    #[test]
    fn a_json_payload_is_copied_byte_for_byte() {
        let text = "{ \"n\": 1.0,\n \"n\":9007199254740993 }";
        let event = NewEvent::new("a.b", Payload::Json(text.to_owned())).about("order", "1");
        let page = written(vec![event.sequence(3)]);
        let (start, end) = page.split_once(text).unwrap();
        assert!(start.ends_with(",\"sequence\":3,\"data\":"), "{start}");
        assert_eq!(end, "}],\"cursor\":\"AQE\",\"has_more\":true}");
        let read: Value = serde_json::from_str(&page).unwrap();
        let event = &read["data"][0];
        assert_eq!(event["tenant"], "ac\"me");
        assert_eq!(event["timestamp"], "2023-11-14T22:13:20.250Z");
        assert_eq!(event["aggregate"]["id"], "1");
    }

    #[test]
    fn any_other_payload_is_in_base64_with_its_media_type() {
        let bytes = Bytes::from_static(&[0, 255, 1]);
        let content_type = "image/x".to_owned();
        let image = Payload::Binary {
            content_type,
            bytes,
        };
        let page = written(vec![NewEvent::new("img", image), NewEvent::json("a", &1)]);
        let read: Value = serde_json::from_str(&page).unwrap();
        assert_eq!(read["data"][0]["data_base64"], "AP8B");
        assert_eq!(read["data"][0]["content_type"], "image/x");
        assert_eq!(read["data"][1]["data"], 1);
    }
}
