//! Encodings of events for receivers.
//!
//! A JSON payload is copied byte for byte: it was validated when it was emitted, and numbers,
//! whitespace and the order of members are kept. Other payloads are encoded as base64. An event is
//! one buffer that is written once.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hapax::{
    Timestamp,
    event::{Event, Payload},
    sink::Offer,
    trace::{TRACEPARENT, TRACESTATE},
};
use serde::{Deserialize, Serialize};

/// Reserved space for everything except the payload.
const ENVELOPE_BYTES: usize = 512;
/// Attributes with a meaning in CloudEvents or in this module.
const RESERVED: [&str; 12] = [
    "id",
    "source",
    "specversion",
    "type",
    "time",
    "subject",
    "datacontenttype",
    "dataschema",
    "data",
    "database64",
    "sequence",
    "tenant",
];

/// The names of the trace headers in all protocols that have headers.
const CONTEXT: [&str; 3] = [TRACEPARENT, TRACESTATE, "correlation_id"];
/// The media type of a CloudEvents 1.0 event in structured JSON.
pub const STRUCTURED: &str = "application/cloudevents+json";

/// The encoding of events for a broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// CloudEvents 1.0 in binary mode: the payload as body, the attributes as headers.
    #[default]
    Binary,
    /// CloudEvents 1.0 in structured mode: one JSON document that contains everything.
    Structured,
    /// The payload as body, without attributes.
    Raw,
}

impl Format {
    /// Encodes the event. `source` is the CloudEvents source.
    pub fn write(self, event: &Event, source: &str) -> Written {
        let mut attributes = Vec::with_capacity(if self == Self::Binary { 8 } else { 0 });
        if self == Self::Binary {
            attributes.push(("specversion".into(), "1.0".to_owned()));
            attributes.push(("id".into(), event.id.to_string()));
            attributes.push(("source".into(), source.to_owned()));
            attributes.push(("type".into(), event.kind.clone()));
            attributes.push(("time".into(), rfc3339(event.created_at)));
            each_attribute(event, |name, value| {
                attributes.push((Cow::Owned(name.to_owned()), value.to_owned()));
            });
        }
        let structured = self == Self::Structured;
        Written {
            attributes,
            content_type: if structured {
                STRUCTURED.to_owned()
            } else {
                event.payload.content_type().to_owned()
            },
            body: match &event.payload {
                _ if structured => Bytes::from(cloud_event(event, source)),
                Payload::Json(text) => Bytes::copy_from_slice(text.as_bytes()),
                Payload::Binary { bytes, .. } => bytes.clone(),
            },
        }
    }
}

/// The encoding of events for a receiver of texts: lines, or messages without headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum TextFormat {
    /// CloudEvents 1.0 in structured mode: one JSON document that contains everything.
    #[default]
    Structured,
    /// The payload. One that is not JSON becomes a JSON string with its base64.
    Raw,
}

impl TextFormat {
    /// Encodes the event as JSON, which is always UTF-8. `source` is the CloudEvents source.
    pub fn write(self, event: &Event, source: &str) -> Vec<u8> {
        match (self, &event.payload) {
            (Self::Structured, _) => cloud_event(event, source),
            (Self::Raw, Payload::Json(text)) => text.as_bytes().to_vec(),
            (Self::Raw, Payload::Binary { bytes, .. }) => {
                let mut out = Vec::with_capacity(room_for(&event.payload));
                push_base64(&mut out, bytes);
                out
            }
        }
    }
}

/// An event encoded for a protocol with headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The attributes of CloudEvents, without the prefix of the protocol; only in binary mode.
    pub attributes: Vec<(Cow<'static, str>, String)>,
    /// The media type of the body.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
}

/// The headers that have the same names in every format.
///
/// The trace is that of the attempt, so that the receiver's spans are below the attempt that
/// reached it. The attributes of CloudEvents belong to the event and keep the trace in which it was
/// emitted.
pub fn context(offer: &Offer) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
    let carried = |name| match name {
        TRACEPARENT => Some((name, offer.traceparent()?)),
        _ => Some((name, Cow::from(offer.event().headers.get(name)?))),
    };
    CONTEXT.into_iter().filter_map(carried)
}

/// Encodes a Standard Webhooks body: `{"type","timestamp","data"}`.
///
/// ```
/// # use hapax::{Random, Timestamp, event::{Headers, NewEvent}, outbox::build_event};
/// # let new = NewEvent::json("order.created", &serde_json::json!({"amount": 500}));
/// # let at = Timestamp::from_millis(1_700_000_000_250);
/// # let event = build_event(new, None, &Headers::new(), at, &Random::new(|| 7))?;
/// let body = hapax_sinks::format::standard_webhook(&event);
/// let expected =
///     r#"{"type":"order.created","timestamp":"2023-11-14T22:13:20.250Z","data":{"amount":500}}"#;
/// assert_eq!(body, expected.as_bytes());
/// # Ok::<(), hapax::outbox::EventError>(())
/// ```
pub fn standard_webhook(event: &Event) -> Vec<u8> {
    let mut out = Vec::with_capacity(room_for(&event.payload));
    out.extend_from_slice(b"{\"type\":");
    push_text(&mut out, &event.kind);
    push_member(&mut out, "timestamp", &rfc3339(event.created_at));
    out.extend_from_slice(b",\"data\":");
    match &event.payload {
        Payload::Json(text) => out.extend_from_slice(text.as_bytes()),
        Payload::Binary { bytes, .. } => push_base64(&mut out, bytes),
    }
    out.push(b'}');
    out
}

/// Encodes a Standard Webhooks body without the payload: `data` has the id of the event, its tenant, when
/// it was created, and a link from which the receiver fetches it. `base` is the beginning of the link.
///
/// ```
/// # use hapax::{Random, Timestamp, event::{Headers, NewEvent}, outbox::build_event};
/// # let new = NewEvent::json("order.created", &serde_json::json!({"amount": 500}));
/// # let at = Timestamp::from_millis(1_700_000_000_250);
/// # let event = build_event(new, None, &Headers::new(), at, &Random::new(|| 7))?;
/// let body = hapax_sinks::format::thin_webhook(&event, 42, "https://shop.example/events");
/// let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
/// let link = format!("https://shop.example/events/{}?position=42", event.id);
/// assert_eq!(body["data"]["url"], link);
/// assert!(body["data"].get("amount").is_none());
/// # Ok::<(), hapax::outbox::EventError>(())
/// ```
pub fn thin_webhook(event: &Event, position: i64, base: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENVELOPE_BYTES);
    let (id, created_at) = (event.id.to_string(), rfc3339(event.created_at));
    out.extend_from_slice(b"{\"type\":");
    push_text(&mut out, &event.kind);
    push_member(&mut out, "timestamp", &created_at);
    out.extend_from_slice(b",\"data\":{\"id\":");
    push_text(&mut out, &id);
    if let Some(tenant) = &event.tenant {
        push_member(&mut out, "tenant", tenant.as_str());
    }
    push_member(&mut out, "created_at", &created_at);
    let link = format!("{base}/{id}?position={position}");
    push_member(&mut out, "url", &link);
    out.extend_from_slice(b"}}");
    out
}

/// Encodes a CloudEvents 1.0 event in structured JSON.
///
/// `subject` is the aggregate as `type/id`. The tenant, the sequence and the headers of the event
/// are extension attributes, whose names omit `_` and `-` (`correlation_id` is `correlationid`).
pub fn cloud_event(event: &Event, source: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(room_for(&event.payload));
    out.extend_from_slice(b"{\"specversion\":\"1.0\"");
    push_member(&mut out, "id", &event.id.to_string());
    push_member(&mut out, "source", source);
    push_member(&mut out, "type", &event.kind);
    push_member(&mut out, "time", &rfc3339(event.created_at));
    push_attributes(&mut out, event);
    push_member(&mut out, "datacontenttype", event.payload.content_type());
    match &event.payload {
        Payload::Json(text) => {
            out.extend_from_slice(b",\"data\":");
            out.extend_from_slice(text.as_bytes());
        }
        Payload::Binary { bytes, .. } => {
            out.extend_from_slice(b",\"data_base64\":");
            push_base64(&mut out, bytes);
        }
    }
    out.push(b'}');
    out
}

/// Returns the payload unchanged.
pub fn raw(event: &Event) -> Vec<u8> {
    event.payload.bytes().to_vec()
}

/// Formats a time as RFC 3339 in UTC with milliseconds.
pub fn rfc3339(moment: Timestamp) -> String {
    format!("{:.3}", civil(moment))
}

/// The time for a calendar. One outside the calendar is its first or its last moment.
pub(crate) fn civil(moment: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(moment.as_millis()).unwrap_or(if moment.as_millis() < 0 {
        jiff::Timestamp::MIN
    } else {
        jiff::Timestamp::MAX
    })
}

/// Appends one event as one line. JSON has line breaks only between its tokens.
#[cfg(any(feature = "file", feature = "s3"))]
pub(crate) fn push_line(lines: &mut Vec<u8>, mut event: Vec<u8>) {
    for byte in &mut event {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    lines.append(&mut event);
    lines.push(b'\n');
}

fn push_attributes(out: &mut Vec<u8>, event: &Event) {
    each_attribute(event, |name, value| push_member(out, name, value));
}

/// Visits the optional attributes and the extension attributes of an event.
fn each_attribute(event: &Event, mut visit: impl FnMut(&str, &str)) {
    if let Some(aggregate) = &event.aggregate {
        visit("subject", &format!("{}/{}", aggregate.kind, aggregate.id));
    }
    if let Some(sequence) = event.sequence {
        visit("sequence", &sequence.to_string());
    }
    if let Some(tenant) = &event.tenant {
        visit("tenant", tenant.as_str());
    }
    let mut written: Vec<String> = Vec::new();
    for (name, value) in &event.headers {
        let attribute = name.replace(['_', '-'], "");
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        // A name that is not valid in CloudEvents, or is already used, is omitted.
        if attribute.is_empty()
            || !attribute.bytes().all(allowed)
            || RESERVED.contains(&attribute.as_str())
            || written.contains(&attribute)
        {
            continue;
        }
        visit(&attribute, value);
        written.push(attribute);
    }
}

fn room_for(payload: &Payload) -> usize {
    ENVELOPE_BYTES
        + match payload {
            Payload::Json(text) => text.len(),
            Payload::Binary { bytes, .. } => bytes.len().div_ceil(3) * 4,
        }
}

/// Appends a member whose name needs no escaping.
fn push_member(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    push_text(out, value);
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a string can be serialized as JSON in memory");
}

fn push_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use hapax::{
        Random,
        event::{Headers, NewEvent},
        key::Tenant,
        outbox::build_event,
    };

    use std::sync::Arc;

    use hapax::{outbox::OutboxEvent, trace::TraceContext};

    use super::*;

    #[test]
    fn a_json_payload_is_spliced_in_byte_for_byte() {
        let text = "{ \"n\": 1.0,\n \"n\":9007199254740993, \"é\":\"\\u00e9\" }";
        let event = sealed(NewEvent::new("a.b", Payload::Json(text.to_owned())));
        for body in [standard_webhook(&event), cloud_event(&event, "/s")] {
            let body = String::from_utf8(body).unwrap();
            assert!(body.ends_with(&format!("\"data\":{text}}}")), "{body}");
            serde_json::from_str::<serde_json::Value>(&body).unwrap();
        }
        assert_eq!(raw(&event), text.as_bytes());
    }

    #[test]
    fn a_text_is_always_json() {
        let text = "{ \"n\": 1.0 }";
        let event = sealed(NewEvent::new("a.b", Payload::Json(text.to_owned())));
        assert_eq!(TextFormat::Raw.write(&event, "/s"), text.as_bytes());
        let structured = TextFormat::default().write(&event, "/s");
        assert_eq!(structured, cloud_event(&event, "/s"));
        let event = sealed(binary());
        assert_eq!(TextFormat::Raw.write(&event, "/s"), b"\"AP8B\"");
    }

    #[test]
    fn a_binary_payload_is_written_as_base64() {
        let event = sealed(binary());
        check(
            &standard_webhook(&event),
            &expect![[r#"{"type":"img","timestamp":"2023-11-14T22:13:20.000Z","data":"AP8B"}"#]],
        );
        assert_eq!(raw(&event), [0, 255, 1]);
    }

    #[test]
    fn binary_mode_says_beside_the_payload_what_structured_mode_says_around_it() {
        let new = binary()
            .about("order", "o-1")
            .header("traceparent", "00-aa");
        let event = sealed(new.header("correlation_id", "c-1"));
        let written = Format::Binary.write(&event, "/shop");
        let structured = Format::Structured.write(&event, "/shop");
        let document: serde_json::Value = serde_json::from_slice(&structured.body).unwrap();
        for (name, value) in &written.attributes {
            assert_eq!(document[&**name], **value, "{name}");
        }
        // All members except for the content type and the payload.
        let members = document.as_object().unwrap().len();
        assert_eq!(members, written.attributes.len() + 2);
        assert_eq!(
            (written.content_type.as_str(), &written.body[..]),
            ("image/x", &[0, 255, 1][..])
        );
        assert_eq!(
            (
                structured.content_type.as_str(),
                structured.attributes.len()
            ),
            (STRUCTURED, 0)
        );
        let raw = Format::Raw.write(&event, "/shop");
        assert_eq!((raw.attributes.len(), raw.body), (0, written.body));
        let position = 1;
        let mut offer = Offer {
            event: Arc::new(OutboxEvent { position, event }),
            attempt: 1,
            trace: None,
        };
        check_context(&offer, "00-aa");
        let attempt = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        offer.trace = TraceContext::parse(attempt);
        check_context(&offer, attempt);
        // The body, which a consumer may hash, is the same for every attempt.
        let again = Format::Structured.write(offer.event(), "/shop");
        assert_eq!(again.body, structured.body);
    }

    #[track_caller]
    fn check_context(offer: &Offer, traceparent: &str) {
        let carried: Vec<_> = context(offer).collect();
        let expected = [("traceparent", traceparent), ("correlation_id", "c-1")];
        assert_eq!(carried, expected.map(|(name, value)| (name, value.into())));
    }

    #[test]
    fn a_cloud_event_carries_the_envelope_as_attributes() {
        let new = binary()
            .about("order", "ord_\"1\"")
            .sequence(3)
            .header("correlation_id", "c-1")
            .header("correlationid", "hidden behind correlation_id")
            .header("traceparent", "00-aa-bb-01")
            .header("id", "not the id")
            .header("Übel", "cannot be spelt");
        check(
            &cloud_event(&sealed(new), "/shop"),
            &expect![[
                r#"{"specversion":"1.0","id":"018bcfe5-6800-7700-8000-000000000700","source":"/shop","type":"img","time":"2023-11-14T22:13:20.000Z","subject":"order/ord_\"1\"","sequence":"3","tenant":"alice","correlationid":"c-1","traceparent":"00-aa-bb-01","datacontenttype":"image/x","data_base64":"AP8B"}"#
            ]],
        );
    }

    #[test]
    fn a_moment_outside_the_calendar_is_written_as_its_edge() {
        assert_eq!(
            rfc3339(Timestamp::from_millis(i64::MAX)),
            "9999-12-30T22:00:00.999Z"
        );
    }

    #[track_caller]
    fn check(written: &[u8], expected: &Expect) {
        expected.assert_eq(std::str::from_utf8(written).unwrap());
        serde_json::from_slice::<serde_json::Value>(written).unwrap();
    }

    fn binary() -> NewEvent {
        let payload = Payload::Binary {
            content_type: "image/x".to_owned(),
            bytes: Bytes::from_static(&[0, 255, 1]),
        };
        NewEvent::new("img", payload)
    }

    fn sealed(new: NewEvent) -> Event {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let tenant = Tenant::new("alice").unwrap();
        build_event(new, Some(&tenant), &Headers::new(), at, &Random::new(|| 7)).unwrap()
    }
}
