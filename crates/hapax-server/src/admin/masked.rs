//! Masked display of content: JSON with sensitive values replaced, and only the media type and
//! length of everything else.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hapax::{
    event::{Headers, Payload},
    mask::{MASKED, Mask, Shown},
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Maximum number of characters of a response that are shown.
const HEAD_SHOWN: usize = 1024;

/// A body, masked.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ContentView {
    /// The media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_type: Option<String>,
    /// The length in bytes.
    pub(crate) bytes: u64,
    /// The text, if it is JSON of at most 256 KiB. The values of sensitive members are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

impl ContentView {
    /// Masks content of a media type.
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

/// A payload. With a mask, only JSON is shown; without one, the text as stored, or base64.
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

/// Headers with sensitive values replaced.
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

/// The beginning of a receiver's response. A response that begins like JSON but cannot be parsed,
/// because it was cut, is not shown: it cannot be masked.
pub(super) fn response(mask: Option<&Mask>, head: &[u8]) -> String {
    let shown = match mask {
        Some(mask) => mask.head(head).unwrap_or_default(),
        None => String::from_utf8_lossy(head).into_owned(),
    };
    shown.chars().take(HEAD_SHOWN).collect()
}

/// A stored value of a saga, masked. `None` if it is empty.
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
