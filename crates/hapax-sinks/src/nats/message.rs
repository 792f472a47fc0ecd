//! Encoding of an event as a NATS message: subject, headers and body.
//!
//! In binary mode the attributes of CloudEvents are headers `ce-...`, with values encoded as in the
//! HTTP binding. The id, the media type and the trace are headers in every format.

use std::fmt::Write as _;

use async_nats::{HeaderMap, HeaderName};
use bytes::Bytes;
use hapax::sink::Offer;

use super::{outcome::Failure, subject};
use crate::{
    format::{self, Format},
    limits::NATS_SUBJECT_BYTES_MAX,
    pattern::Pattern,
};

const MESSAGE_ID: HeaderName = HeaderName::from_static("Nats-Msg-Id");
const CONTENT_TYPE: HeaderName = HeaderName::from_static("content-type");

/// An encoded message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) subject: String,
    pub(super) headers: HeaderMap,
    pub(super) payload: Bytes,
}

/// Encodes an event.
pub(super) fn write(
    offer: &Offer,
    pattern: &Pattern,
    format: Format,
    source: &str,
) -> Result<Message, Failure> {
    let event = offer.event();
    let subject = subject::of(event, pattern);
    if subject.len() > NATS_SUBJECT_BYTES_MAX {
        // The server closes the connection after a line that is too long, which fails the whole
        // batch.
        return Err(Failure::Subject(subject.len()));
    }
    let written = format.write(event, source);
    let mut headers = HeaderMap::new();
    headers.insert(MESSAGE_ID, event.id.to_string());
    headers.insert(CONTENT_TYPE, spell(&written.content_type, true));
    for (name, value) in format::context(offer) {
        headers.insert(name, spell(&value, true));
    }
    for (name, value) in &written.attributes {
        if let Some(name) = header(name) {
            headers.insert(name, spell(value, false));
        }
    }
    Ok(Message {
        subject,
        headers,
        payload: written.body,
    })
}

/// The header of an attribute. Most are constants and need not be built.
fn header(attribute: &str) -> Option<HeaderName> {
    Some(HeaderName::from_static(match attribute {
        "specversion" => "ce-specversion",
        "id" => "ce-id",
        "source" => "ce-source",
        "type" => "ce-type",
        "time" => "ce-time",
        "subject" => "ce-subject",
        "sequence" => "ce-sequence",
        "tenant" => "ce-tenant",
        other => return format!("ce-{other}").parse().ok(),
    }))
}

/// Percent-encodes characters that a header value cannot contain.
fn spell(value: &str, blanks: bool) -> String {
    let is_plain = |byte: u8| match byte {
        b'"' | b'%' | b' ' => blanks,
        _ => byte.is_ascii_graphic(),
    };
    if value.bytes().all(is_plain) {
        return value.to_owned();
    }
    let mut spelt = String::with_capacity(value.len() + 16);
    for byte in value.bytes() {
        if is_plain(byte) {
            spelt.push(char::from(byte));
        } else {
            write!(spelt, "%{byte:02X}").expect("writing to a string never fails");
        }
    }
    spelt
}
