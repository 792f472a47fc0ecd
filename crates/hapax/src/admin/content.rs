//! Content of payloads, requests and responses, as it is shown: JSON with masked values, and only
//! the media type and the length of everything else.

use bytes::Bytes;
use serde::Serialize;

use crate::{
    event::{Headers, Payload},
    mask::{MASKED, Mask, Shown},
};

/// A body. Its JSON does not contain the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Content {
    /// The media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The length in bytes.
    pub bytes: u64,
    /// The text, if it is JSON of at most 256 KiB. The values of sensitive members are replaced.
    /// Absent until the content is masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes, which are not masked.
    #[serde(skip)]
    pub raw: Bytes,
}

impl Content {
    /// Creates content that is not masked yet.
    pub fn new(content_type: Option<String>, raw: Bytes) -> Self {
        Self {
            content_type,
            bytes: raw.len() as u64,
            text: None,
            raw,
        }
    }

    /// Sets the text. Content without a media type is not treated as JSON.
    pub fn mask(&mut self, mask: &Mask) {
        let content_type = self.content_type.as_deref();
        let content_type = content_type.unwrap_or("application/octet-stream");
        self.text = json(mask, Some(content_type), &self.raw);
    }
}

/// Masked JSON; `None` if the content is not JSON or too long.
fn json(mask: &Mask, content_type: Option<&str>, bytes: &[u8]) -> Option<String> {
    match mask.content(content_type, bytes) {
        Shown::Json(text) => Some(text),
        Shown::Opaque { .. } => None,
    }
}

/// A payload, masked: `None` unless it is JSON.
pub(super) fn masked_payload(mask: &Mask, payload: &Payload) -> Option<Payload> {
    json(mask, Some(payload.content_type()), payload.bytes()).map(Payload::Json)
}

/// Replaces the values of headers with sensitive names.
pub(super) fn mask_headers(mask: &Mask, headers: &mut Headers) {
    for (name, value) in headers {
        if mask.hides(name) {
            MASKED.clone_into(value);
        }
    }
}

/// The beginning of a receiver's response, masked. A response that begins like JSON but cannot be
/// parsed, because it was cut, is empty: it cannot be masked.
pub(super) fn masked_head(mask: &Mask, head: &[u8]) -> Bytes {
    mask.head(head).unwrap_or_default().into()
}

/// A value of a saga, masked: JSON, or the number of bytes as a JSON string.
pub(super) fn masked_value(mask: &Mask, bytes: &[u8]) -> Bytes {
    match mask.content(None, bytes) {
        _ if bytes.is_empty() => Bytes::new(),
        Shown::Json(text) => text.into(),
        Shown::Opaque { bytes, .. } => format!("\"{bytes} bytes\"").into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn bytes_are_shown_as_json_or_by_their_length() {
        let mask = Mask::default();
        let kept = |bytes: &[u8]| {
            let masked = masked_value(&mask, bytes);
            serde_json::from_slice::<Value>(&masked).ok()
        };
        assert_eq!(kept(b""), None);
        let json = serde_json::json!({"a": 1, "card": "***"});
        assert_eq!(kept(b"{\"a\":1,\"card\":4242}"), Some(json));
        assert_eq!(kept(b"by hand"), Some(Value::from("7 bytes")));
        assert_eq!(kept(b"\xff\x00"), Some(Value::from("2 bytes")));
    }

    #[test]
    fn a_response_that_was_cut_within_json_is_not_shown() {
        let mask = Mask::default();
        assert_eq!(masked_head(&mask, b"no such host"), "no such host");
        assert_eq!(masked_head(&mask, b"{\"pin\":1}"), "{\"pin\":\"***\"}");
        assert_eq!(masked_head(&mask, b" {\"pin\":\"12"), "");
        assert_eq!(masked_head(&mask, b"\xef\xbb\xbf{\"pin\":\"12"), "");
    }
}
