//! Responses: status, headers in order with repetitions, and the body's bytes.
//!
//! [`Response::to_store`] is what is remembered under a key: everything except the headers that
//! belong to one exchange. The bugs that damage a stored response act here.

use serde_json::{Value, json};

use crate::bugs::Bug;

/// Headers of one exchange, which a replay does not repeat.
const PER_EXCHANGE: [&str; 2] = ["Set-Cookie", "Date"];

/// A response, as a handler returns it and as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Without `Content-Length` and other headers of the connection.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) is_chunked: bool,
}

impl Response {
    /// A response without headers and body.
    pub(crate) fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            is_chunked: false,
        }
    }

    /// A problem (RFC 9457) with a code that a client can act on.
    pub(crate) fn problem(status: u16, code: &str, detail: &str) -> Self {
        Self::problem_with(status, code, detail, "", &Value::Null)
    }

    /// A problem with another member, unless its value is null.
    pub(crate) fn problem_with(
        status: u16,
        code: &str,
        detail: &str,
        name: &str,
        value: &Value,
    ) -> Self {
        let mut problem = json!({
            "type": "about:blank",
            "title": reason(status),
            "status": status,
            "detail": detail,
            "code": code,
        });
        if !value.is_null() {
            problem[name] = value.clone();
        }
        Self::new(status)
            .header("Content-Type", "application/problem+json")
            .with_body(problem.to_string())
    }

    /// The response with another header after its others.
    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers
            .push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// The response with this body.
    pub(crate) fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Whether there is a header of that name.
    pub(crate) fn has_header(&self, name: &str) -> bool {
        let mut headers = self.headers.iter();
        headers.any(|(known, _)| known.eq_ignore_ascii_case(name))
    }

    /// The part of the response that is stored.
    pub(crate) fn to_store(&self, bug: Option<Bug>) -> Self {
        let mut stored = self.clone();
        stored.headers.retain(|(name, _)| match name.as_str() {
            "Set-Cookie" if bug == Some(Bug::SetCookieReplayed) => true,
            "Date" if bug == Some(Bug::DateReplayed) => true,
            "Location" if bug == Some(Bug::LocationDropped) => false,
            "Content-Type" => true,
            _ if bug == Some(Bug::HeadersDropped) => false,
            name => !PER_EXCHANGE.contains(&name),
        });
        match bug {
            Some(Bug::Status200OnReplay) => stored.status = 200,
            Some(Bug::RepeatedHeadersMerged) => stored.headers = merged(stored.headers),
            Some(Bug::RepeatedHeadersLastWins) => stored.headers = last_of_each(stored.headers),
            Some(Bug::BinaryHeaderMangled) => {
                for (_, value) in &mut stored.headers {
                    *value = as_text(value);
                }
            }
            Some(Bug::BodyReserialised) => stored.body = reserialised(stored.body),
            Some(Bug::BodyEmptyOnReplay) => stored.body.clear(),
            Some(Bug::BinaryBodyAsText) => stored.body = as_text(&stored.body),
            _ => {}
        }
        stored
    }
}

/// The reason phrase of a status.
pub(crate) fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Unknown",
    }
}

/// Headers with one line for each name, the values joined by commas.
fn merged(headers: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut merged: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, value) in headers {
        match merged.iter_mut().find(|(known, _)| *known == name) {
            Some((_, all)) => {
                all.extend_from_slice(b", ");
                all.extend_from_slice(&value);
            }
            None => merged.push((name, value)),
        }
    }
    merged
}

/// Headers with one line for each name, with its last value.
fn last_of_each(headers: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut last: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, value) in headers {
        last.retain(|(known, _)| *known != name);
        last.push((name, value));
    }
    last
}

/// The bytes, read as UTF-8 and written again.
fn as_text(bytes: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(bytes).into_owned().into_bytes()
}

/// A JSON body, parsed and written again; other bodies as they are.
fn reserialised(body: Vec<u8>) -> Vec<u8> {
    match serde_json::from_slice::<Value>(&body) {
        Ok(value) => value.to_string().into_bytes(),
        Err(_) => body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn created() -> Response {
        Response::new(201)
            .header("Date", "now")
            .header("Content-Type", "application/json")
            .header("Location", "/orders/1")
            .header("Link", "<a>")
            .header("X-Opaque", [b'a', 0xFF])
            .header("Link", "<b>")
            .header("Set-Cookie", "session=1")
            .with_body("{ \"b\": 12.50, \"a\": 1 }")
    }

    fn names(response: &Response) -> Vec<&str> {
        let headers = response.headers.iter();
        headers.map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn everything_is_stored_but_the_headers_of_one_exchange() {
        let stored = created().to_store(None);
        let expected = ["Content-Type", "Location", "Link", "X-Opaque", "Link"];
        assert_eq!(names(&stored), expected);
        assert_eq!(stored.body, created().body);
        assert_eq!(stored.status, 201);
    }

    #[test]
    fn a_stored_response_survives_the_file() {
        let stored = created().to_store(None);
        let line = serde_json::to_string(&stored).expect("a response is JSON");
        let read: Response = serde_json::from_str(&line).expect("the line is a response");
        assert_eq!(read, stored);
    }

    #[test]
    fn bugs_damage_what_is_stored() {
        let with = |bug| created().to_store(Some(bug));
        assert_eq!(with(Bug::Status200OnReplay).status, 200);
        assert_eq!(names(&with(Bug::HeadersDropped)), ["Content-Type"]);
        assert!(!with(Bug::LocationDropped).has_header("location"));
        assert!(with(Bug::SetCookieReplayed).has_header("Set-Cookie"));
        assert!(with(Bug::DateReplayed).has_header("Date"));
        let merged = with(Bug::RepeatedHeadersMerged);
        assert!(
            merged
                .headers
                .contains(&("Link".to_owned(), b"<a>, <b>".to_vec()))
        );
        let last = with(Bug::RepeatedHeadersLastWins);
        let expected = ["Content-Type", "Location", "X-Opaque", "Link"];
        assert_eq!(names(&last), expected);
        let mangled = with(Bug::BinaryHeaderMangled);
        let value = "a\u{FFFD}".as_bytes().to_vec();
        assert!(mangled.headers.contains(&("X-Opaque".to_owned(), value)));
        assert_ne!(with(Bug::BodyReserialised).body, created().body);
        assert!(with(Bug::BodyEmptyOnReplay).body.is_empty());
    }
}
