//! Content as it is shown: JSON without what is nobody's business, and of anything else only what it
//! is and how long.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hapax::{
    event::{Headers, Payload},
    mask::{MASKED, Mask, Shown},
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Bytes of a response's beginning that are shown.
const HEAD_SHOWN: usize = 1024;

/// A body as it is shown.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ContentView {
    /// Its media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_type: Option<String>,
    /// Its length in bytes.
    pub(crate) bytes: u64,
    /// What it says, where it is JSON of at most 256 KiB: its text, with the values of members
    /// replaced whose names say that they are nobody's business.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

impl ContentView {
    /// Content of a media type, masked.
    pub(super) fn of(mask: &Mask, content_type: Option<&str>, bytes: &[u8]) -> Self {
        let text = match mask.content(content_type, bytes) {
            Shown::Json(text) => Some(text),
            Shown::Opaque { .. } => None,
        };
        Self {
            content_type: content_type.map(str::to_owned),
            bytes: bytes.len() as u64,
            text,
        }
    }
}

/// A payload as it is shown: nothing of it where it is no JSON; without a mask as its column has it.
pub(super) fn payload(mask: Option<&Mask>, payload: &Payload) -> Option<String> {
    match (mask, payload) {
        (None, Payload::Json(text)) => Some(text.clone()),
        (None, Payload::Binary { bytes, .. }) => Some(BASE64_STANDARD.encode(bytes)),
        (Some(mask), payload) => {
            let bytes = payload.bytes();
            ContentView::of(mask, Some(payload.content_type()), bytes).text
        }
    }
}

/// Headers with the values of those replaced that are nobody's business.
pub(super) fn headers(mask: Option<&Mask>, mut headers: Headers) -> Headers {
    if let Some(mask) = mask {
        for (name, value) in &mut headers {
            if mask.hides(name) {
                MASKED.clone_into(value);
            }
        }
    }
    headers
}

/// The beginning of a far side's response. What begins as JSON and does not read as it, because it
/// was cut, is not shown: nobody can say what is in it.
pub(super) fn response(mask: Option<&Mask>, head: &[u8]) -> String {
    let shown = match mask {
        Some(mask) => mask.head(head).unwrap_or_default(),
        None => String::from_utf8_lossy(head).into_owned(),
    };
    shown.chars().take(HEAD_SHOWN).collect()
}

/// What a saga keeps, as it is shown; nothing where there is nothing.
pub(super) fn kept(mask: &Mask, bytes: &[u8]) -> Option<Value> {
    if bytes.is_empty() {
        return None;
    }
    Some(match mask.content(None, bytes) {
        Shown::Json(text) => serde_json::from_str(&text).unwrap_or_default(),
        Shown::Opaque { bytes, .. } => Value::String(format!("{bytes} bytes")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_as_json_or_by_their_length() {
        let mask = Mask::default();
        assert_eq!(kept(&mask, b""), None);
        let json = serde_json::json!({"a": 1, "card": "***"});
        assert_eq!(kept(&mask, b"{\"a\":1,\"card\":4242}"), Some(json));
        assert_eq!(kept(&mask, b"by hand"), Some(Value::from("7 bytes")));
        assert_eq!(kept(&mask, b"\xff\x00"), Some(Value::from("2 bytes")));
    }

    #[test]
    fn a_response_that_was_cut_within_json_is_not_shown() {
        let mask = Mask::default();
        assert_eq!(response(Some(&mask), b"no such host"), "no such host");
        assert_eq!(response(Some(&mask), b"{\"pin\":1}"), "{\"pin\":\"***\"}");
        assert_eq!(response(Some(&mask), b" {\"pin\":\"12"), "");
        assert_eq!(response(Some(&mask), b"\xef\xbb\xbf{\"pin\":\"12"), "");
        assert_eq!(response(None, b"{\"pin\":\"12"), "{\"pin\":\"12");
        assert_eq!(response(None, &[b'a'; 4096]).len(), HEAD_SHOWN);
    }
}
