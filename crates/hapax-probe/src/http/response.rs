//! A response: status, header fields in their order, body.

use std::time::Duration;

use crate::{json_text, json_value::canonical};

/// A header field: its name as sent, and the bytes of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
}

/// A complete response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: Vec<Field>,
    pub(crate) body: Vec<u8>,
    /// From the first byte of the request to the last byte of the response.
    pub(crate) elapsed: Duration,
}

impl Response {
    /// Whether the status is 2xx.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the values of all header fields of this name.
    pub(crate) fn values(&self, name: &str) -> Vec<&[u8]> {
        self.fields
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value.as_slice())
            .collect()
    }

    /// Returns the value of the first header field of this name, as text.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.values(name)
            .first()
            .map(|value| String::from_utf8_lossy(value).into_owned())
    }

    /// Returns the body as JSON.
    pub(crate) fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Returns the response without a member of its JSON body. The body is serialised again, so that a
    /// response that has the member can be compared with one that does not.
    #[must_use]
    pub(crate) fn without_member(mut self, name: &str) -> Self {
        if let Some(serde_json::Value::Object(mut members)) = self.json() {
            members.remove(name);
            self.body = serde_json::Value::Object(members).to_string().into_bytes();
        }
        self
    }

    /// Returns the response without the value at a JSON pointer of its body. All other bytes stay as
    /// they are.
    #[must_use]
    pub(crate) fn without_value(mut self, pointer: &str) -> Self {
        let text = std::str::from_utf8(&self.body).ok();
        if let Some(text) = text.and_then(|it| json_text::without(it, pointer)) {
            self.body = text.into_bytes();
        }
        self
    }

    /// Whether a string in the JSON body is this one. Error codes are found wherever they are.
    pub(crate) fn has_text(&self, text: &str) -> bool {
        fn find(value: &serde_json::Value, text: &str) -> bool {
            match value {
                serde_json::Value::String(it) => it == text,
                serde_json::Value::Array(items) => items.iter().any(|it| find(it, text)),
                serde_json::Value::Object(members) => members.values().any(|it| find(it, text)),
                _ => false,
            }
        }
        self.json().is_some_and(|body| find(&body, text))
    }

    /// Whether two responses tell a client the same: the same JSON value, or the same bytes; without a
    /// body the same status. Byte for byte, with status and header fields, is asked by the group
    /// `replay` only, so that one mistake does not break every check.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        if self.is_success() != other.is_success() {
            return false;
        }
        if self.body.is_empty() && other.body.is_empty() {
            return self.status == other.status;
        }
        self.body == other.body
            || canonical(&self.body).is_some_and(|it| Some(it) == canonical(&other.body))
    }

    /// Returns status and the beginning of the body, for messages.
    pub(crate) fn describe(&self) -> String {
        const SHOWN: usize = 120;
        let text = String::from_utf8_lossy(&self.body);
        let mut shown: String = text.chars().take(SHOWN).collect();
        if shown.len() < text.len() {
            shown.push_str("...");
        }
        if shown.is_empty() {
            format!("{} without a body", self.status)
        } else {
            format!("{} {shown}", self.status)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Response {
        Response {
            status,
            fields: Vec::new(),
            body: body.as_bytes().to_vec(),
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn responses_are_alike_if_they_have_the_same_value() {
        assert!(answer(201, r#"{"a":1,"b":2}"#).is_like(&answer(200, r#"{ "b": 2, "a": 1 }"#)));
        assert!(!answer(201, r#"{"a":1}"#).is_like(&answer(201, r#"{"a":2}"#)));
        assert!(
            !answer(201, "[18446744073709551617]").is_like(&answer(201, "[18446744073709551616]"))
        );
        assert!(!answer(201, "ok").is_like(&answer(409, "ok")));
        assert!(answer(201, "").is_like(&answer(201, "")));
        assert!(!answer(201, "").is_like(&answer(202, "")));
        assert!(!answer(201, "").is_like(&answer(201, "x")));
    }

    #[test]
    fn a_member_that_marks_a_replay_is_left_out() {
        let first = answer(200, r#"{"b":1,"a":2}"#);
        let replay = answer(200, r#"{"a":2,"replayed":true,"b":1}"#);
        let [first, replay] = [first, replay].map(|it| it.without_member("replayed"));
        assert_eq!(first.body, replay.body);
    }

    #[test]
    fn a_code_is_found_anywhere_in_the_body() {
        let answer = answer(409, r#"{"error": {"code": ["x", "in_progress"]}}"#);
        assert!(answer.has_text("in_progress"));
        assert!(!answer.has_text("progress"));
    }
}
