//! Events of ingest: the bytes of a request, and what of its head matters.
//!
//! A JSON body becomes a JSON payload, byte for byte. Every other body, and JSON that is nested too
//! deep for the programs that follow, becomes a binary payload with its media type. In both cases the
//! payload is exactly what the provider has sent. A request with several events is taken apart, and
//! the JSON of each of them is unchanged.

use bytes::Bytes;
use hapax::{
    event::{Headers, NewEvent, Payload},
    limits::{EVENT_HEADER_BYTES_MAX, JSON_DEPTH_MAX},
};
use http::{HeaderMap, header::CONTENT_TYPE};
use serde::de::IgnoredAny;

use super::{signature::ProviderEvent, source::Source};

/// The event header with the name of the source.
pub const SOURCE_HEADER: &str = "ingest_source";
/// The event header with the provider's id of the event.
pub const ID_HEADER: &str = "ingest_id";
/// The event header with the content type of the request, as it was sent.
pub const CONTENT_TYPE_HEADER: &str = "ingest_content_type";

/// The media type of a body that has none.
const OCTETS: &str = "application/octet-stream";
/// Maximum length of a content type that is kept, in bytes.
const CONTENT_TYPE_MAX: usize = 255;

/// The event to emit.
pub(super) fn event(
    source: &Source,
    provided: &ProviderEvent,
    headers: &HeaderMap,
    body: &Bytes,
) -> NewEvent {
    let content_type = content_type(headers);
    let payload = match &provided.part {
        Some(part) => Payload::Json(part.clone()),
        None => payload(content_type, body),
    };
    let mut event = NewEvent::new(source.kind(provided.kind.as_deref()), payload);
    event.headers = kept(source, headers);
    event = event
        .header(SOURCE_HEADER, source.name())
        .header(ID_HEADER, provided.id.as_str());
    if let Some(content_type) = content_type {
        event = event.header(CONTENT_TYPE_HEADER, content_type);
    }
    event.tenant = source.tenant().cloned();
    event
}

/// The headers of the provider that fit into an event.
fn kept(source: &Source, headers: &HeaderMap) -> Headers {
    let names = source.scheme().kept_headers().iter();
    let found = names.filter_map(|name| {
        let value = headers.get(*name)?.to_str().ok()?;
        let fits = name.len() + value.len() <= EVENT_HEADER_BYTES_MAX && !value.contains('\t');
        fits.then(|| ((*name).to_owned(), value.to_owned()))
    });
    found.collect()
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let fits = value.len() <= CONTENT_TYPE_MAX && !value.contains('\t');
    Some(value).filter(|value| fits && !value.is_empty())
}

fn payload(content_type: Option<&str>, body: &Bytes) -> Payload {
    let content_type = content_type.unwrap_or(OCTETS);
    let text = str::from_utf8(body).ok();
    match text.filter(|text| is_json_type(content_type) && is_shallow_json(text)) {
        Some(text) => Payload::Json(text.to_owned()),
        None => Payload::Binary {
            content_type: content_type.to_owned(),
            bytes: body.clone(),
        },
    }
}

/// Whether a media type is that of JSON: `application/json` or `+json`.
fn is_json_type(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

/// Whether a text is JSON that is not nested deeper than the bound of the other parts of Hapax.
fn is_shallow_json(text: &str) -> bool {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                if depth > JSON_DEPTH_MAX {
                    return false;
                }
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::settings::{SchemeName, SourceSettings};

    #[test]
    fn the_payload_is_what_was_sent() {
        let json = "application/json; charset=utf-8";
        let deep = "[".repeat(129) + &"]".repeat(129);
        let shallow = "[".repeat(128) + &"]".repeat(128);
        for (content_type, body, is_json) in [
            (Some(json), "{ \"n\": 1.0,\n \"n\":1e999 }", true),
            (Some("application/cloudevents+JSON"), "[\"[{\\\"\"]", true),
            (Some(json), shallow.as_str(), true),
            (Some(json), deep.as_str(), false),
            (Some(json), "", false),
            (Some(json), "{", false),
            (Some("application/x-www-form-urlencoded"), "a=1", false),
            (Some("text/plain"), "{}", false),
            (None, "{}", false),
        ] {
            let payload = payload(content_type, &Bytes::from(body.to_owned()));
            assert_eq!(payload.bytes(), body.as_bytes());
            assert_eq!(matches!(payload, Payload::Json(_)), is_json, "{body}");
            if !is_json {
                assert_eq!(payload.content_type(), content_type.unwrap_or(OCTETS));
            }
        }
        let bytes = Bytes::from_static(b"\"\xff\"");
        assert_eq!(payload(Some(json), &bytes).bytes(), &bytes);
    }

    #[test]
    fn an_event_keeps_the_headers_that_matter_and_no_signature() {
        let settings = SourceSettings::new(SchemeName::GitHub, ["secret".into()]);
        let source = Source::new("code", &settings).unwrap();
        let long = "x".repeat(5_000);
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-type", "application/json"),
            ("x-github-event", "push"),
            ("x-github-delivery", "72d3162e"),
            ("x-github-hook-id", long.as_str()),
            ("x-hub-signature-256", "sha256=00"),
            ("authorization", "Bearer planted"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let provided = ProviderEvent {
            id: "72d3162e".to_owned(),
            kind: Some("push".to_owned()),
            part: None,
        };
        let event = event(&source, &provided, &headers, &Bytes::from_static(b"{}"));
        assert_eq!(event.kind, "code.push");
        let kept: Vec<_> = event.headers.into_iter().collect();
        let expected = [
            (CONTENT_TYPE_HEADER, "application/json"),
            (ID_HEADER, "72d3162e"),
            (SOURCE_HEADER, "code"),
            ("x-github-delivery", "72d3162e"),
            ("x-github-event", "push"),
        ];
        assert_eq!(kept, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }
}
