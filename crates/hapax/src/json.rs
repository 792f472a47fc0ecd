//! How fields are written in JSON: the serializers of views.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde::{Serialize as _, Serializer};
use serde_json::Value;

use crate::event::Payload;

/// Maximum number of characters of a receiver's response that are shown.
const HEAD_SHOWN: usize = 1024;

/// A payload as text: JSON as it is, anything else in base64.
pub(crate) fn payload_text(payload: &Payload) -> String {
    match payload {
        Payload::Json(text) => text.clone(),
        Payload::Binary { bytes, .. } => BASE64_STANDARD.encode(bytes),
    }
}

/// Serializes a payload as text.
#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
pub(crate) fn payload<S: Serializer>(
    payload: &Option<Payload>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    payload.as_ref().map(payload_text).serialize(serializer)
}

/// Serializes the beginning of a response as text.
pub(crate) fn head<S: Serializer>(head: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    let text = String::from_utf8_lossy(head);
    let shown: String = text.chars().take(HEAD_SHOWN).collect();
    serializer.serialize_str(&shown)
}

/// Serializes a JSON value of a saga.
pub(crate) fn value<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
    value.serialize(serializer)
}

/// Serializes a duration in milliseconds.
pub(crate) fn millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Serializes an optional duration in milliseconds.
#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
pub(crate) fn some_millis<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => millis(duration, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_shown_up_to_a_number_of_characters() {
        let shown = |bytes: Vec<u8>| head(&bytes.into(), serde_json::value::Serializer).unwrap();
        assert_eq!(shown(b"{\"pin\":\"12".to_vec()), "{\"pin\":\"12");
        assert_eq!(shown(vec![b'a'; 4096]).as_str().unwrap().len(), HEAD_SHOWN);
    }
}
