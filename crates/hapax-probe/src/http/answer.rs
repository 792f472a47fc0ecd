//! A response: status, header fields in their order, body.

use std::time::Duration;

/// The maximum number of header fields of a response.
const FIELDS_MAX: usize = 128;

/// A header field: its name as sent, and the bytes of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
}

/// A complete response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<Field>,
    pub(crate) body: Vec<u8>,
    /// From the first byte of the request to the last byte of the response.
    pub(crate) elapsed: Duration,
}

/// What the bytes read so far are.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// A complete response.
    Complete(Answer),
    /// The response goes on.
    Partial,
    /// It is not a response.
    Malformed(String),
}

impl Answer {
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

    /// Returns the response without a member of its JSON body. The body is written anew, so that a
    /// response that has the member can be compared with one that does not.
    #[must_use]
    pub(crate) fn without_member(mut self, name: &str) -> Self {
        if let Some(serde_json::Value::Object(mut members)) = self.json() {
            members.remove(name);
            self.body = serde_json::Value::Object(members).to_string().into_bytes();
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
        self.body == other.body || self.json().is_some_and(|it| Some(it) == other.json())
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

    /// Reads a response from its bytes. `at_end` says that the server has closed the connection.
    pub(crate) fn parse(bytes: &[u8], at_end: bool, elapsed: Duration) -> Parsed {
        let mut start = 0;
        loop {
            let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
            let mut head = httparse::Response::new(&mut fields);
            let length = match head.parse(bytes.get(start..).unwrap_or_default()) {
                Ok(httparse::Status::Complete(length)) => length,
                Ok(httparse::Status::Partial) => return Parsed::Partial,
                Err(error) => return Parsed::Malformed(error.to_string()),
            };
            let status = head.code.unwrap_or_default();
            // 100 Continue, 103 Early Hints: the response itself follows.
            if (100..200).contains(&status) {
                start += length;
                continue;
            }
            let fields: Vec<Field> = head
                .headers
                .iter()
                .map(|it| Field {
                    name: it.name.to_owned(),
                    value: it.value.to_vec(),
                })
                .collect();
            let answer = Self {
                status,
                fields,
                body: Vec::new(),
                elapsed,
            };
            let rest = bytes.get(start + length..).unwrap_or_default();
            return answer.with_body(rest, at_end);
        }
    }

    fn with_body(mut self, rest: &[u8], at_end: bool) -> Parsed {
        if matches!(self.status, 204 | 304) {
            return Parsed::Complete(self);
        }
        let chunked = self
            .header("transfer-encoding")
            .is_some_and(|it| it.to_ascii_lowercase().ends_with("chunked"));
        if chunked {
            return match dechunk(rest) {
                Ok(Some(body)) => {
                    self.body = body;
                    Parsed::Complete(self)
                }
                Ok(None) => Parsed::Partial,
                Err(reason) => Parsed::Malformed(reason),
            };
        }
        let Some(length) = self.header("content-length") else {
            // Without a length the body ends with the connection.
            if !at_end {
                return Parsed::Partial;
            }
            self.body = rest.to_vec();
            return Parsed::Complete(self);
        };
        let Ok(length) = length.trim().parse::<usize>() else {
            return Parsed::Malformed(format!("Content-Length is {length:?}"));
        };
        match rest.get(..length) {
            Some(body) => {
                self.body = body.to_vec();
                Parsed::Complete(self)
            }
            None => Parsed::Partial,
        }
    }
}

/// Returns the content of a chunked body, or `None` if it goes on.
fn dechunk(mut rest: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut body = Vec::new();
    loop {
        let (start, length) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete(it)) => it,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err("a chunk has no valid length".to_owned()),
        };
        let length = usize::try_from(length).map_err(|_| "a chunk is too long".to_owned())?;
        let Some(after) = rest.get(start..) else {
            return Ok(None);
        };
        if length == 0 {
            // The last chunk; trailers, if any, end with an empty line.
            let ends = after.starts_with(b"\r\n") || after.windows(4).any(|it| it == b"\r\n\r\n");
            return Ok(ends.then_some(body));
        }
        let Some(chunk) = after.get(..length) else {
            return Ok(None);
        };
        body.extend_from_slice(chunk);
        let Some(after) = after.get(length + 2..) else {
            return Ok(None);
        };
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(bytes: &[u8], at_end: bool) -> Answer {
        match Answer::parse(bytes, at_end, Duration::ZERO) {
            Parsed::Complete(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fields_keep_their_order_case_and_bytes() {
        let answer = complete(
            b"HTTP/1.1 201 Created\r\nLink: a\r\nX-Raw: \xff\xfe\r\nlink: b\r\nContent-Length: 2\r\n\r\nokEXTRA",
            false,
        );
        assert_eq!(answer.status, 201);
        assert_eq!(answer.values("LINK"), [b"a", b"b"]);
        assert_eq!(answer.values("x-raw"), [b"\xff\xfe"]);
        assert_eq!(answer.body, b"ok");
    }

    #[test]
    fn a_chunked_body_is_joined() {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        let whole = [head.as_slice(), b"3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n"].concat();
        assert_eq!(complete(&whole, false).body, b"abcde");
        for cut in 0..whole.len() {
            let part = Answer::parse(&whole[..cut], true, Duration::ZERO);
            assert!(matches!(part, Parsed::Partial), "at {cut}: {part:?}");
        }
    }

    #[test]
    fn an_interim_response_is_skipped() {
        let answer = complete(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            false,
        );
        assert_eq!(answer.status, 204);
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_connection() {
        let bytes = b"HTTP/1.1 200 OK\r\n\r\nabc";
        let part = Answer::parse(bytes, false, Duration::ZERO);
        assert!(matches!(part, Parsed::Partial));
        assert_eq!(complete(bytes, true).body, b"abc");
    }

    #[test]
    fn responses_are_alike_if_they_have_the_same_value() {
        let of = |status: &str, body: &str| {
            let bytes = format!(
                "HTTP/1.1 {status} S\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            complete(bytes.as_bytes(), false)
        };
        assert!(of("201", r#"{"a":1,"b":2}"#).is_like(&of("200", r#"{ "b": 2, "a": 1 }"#)));
        assert!(!of("201", r#"{"a":1}"#).is_like(&of("201", r#"{"a":2}"#)));
        assert!(!of("201", "ok").is_like(&of("409", "ok")));
        assert!(of("201", "").is_like(&of("201", "")));
        assert!(!of("201", "").is_like(&of("202", "")));
        assert!(!of("201", "").is_like(&of("201", "x")));
    }

    #[test]
    fn a_member_that_marks_a_replay_is_left_out() {
        let mut first = complete(b"HTTP/1.1 200 S\r\nContent-Length: 0\r\n\r\n", false);
        let mut replay = first.clone();
        first.body = br#"{"b":1,"a":2}"#.to_vec();
        replay.body = br#"{"a":2,"replayed":true,"b":1}"#.to_vec();
        let [first, replay] = [first, replay].map(|it| it.without_member("replayed"));
        assert_eq!(first.body, replay.body);
    }

    #[test]
    fn a_code_is_found_anywhere_in_the_body() {
        let mut answer = complete(b"HTTP/1.1 409 C\r\nContent-Length: 0\r\n\r\n", false);
        answer.body = br#"{"error": {"code": ["x", "in_progress"]}}"#.to_vec();
        assert!(answer.has_text("in_progress"));
        assert!(!answer.has_text("progress"));
    }
}
