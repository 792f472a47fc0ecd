//! HTTP/1.1 messages: the head of a request and the bytes of a response.
//!
//! The server has a separate parser, because its bugs are about bytes: header values that are not
//! UTF-8, repeated headers, bodies that are cut. Ambiguous requests are refused: folded headers,
//! two lengths, a length together with chunks.

use std::sync::{Arc, atomic::AtomicBool};

use crate::response::{Response, reason};

/// Bytes of a body.
pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Parts of a chunked response.
const CHUNKS: usize = 3;

/// A request that was read from its connection.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    /// Whether the connection ended within the body.
    pub(crate) is_cut: bool,
    /// Whether the client closed the connection since.
    pub(crate) is_gone: Arc<AtomicBool>,
}

/// The request line and the headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Without the question mark; empty if there is none.
    pub(crate) query: String,
    /// Names in lower case, values without the white space around them.
    headers: Vec<(String, Vec<u8>)>,
    is_version_1_1: bool,
}

/// How long the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Exact(usize),
    Chunked,
}

impl Head {
    /// Parses a head without its empty line; an error says what is wrong with it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut lines = lines(bytes);
        let line = lines.next().unwrap_or_default();
        let line = std::str::from_utf8(line).map_err(|_| "the request line is not ASCII")?;
        let mut words = line.split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err("the request line has not three parts");
        };
        if !is_token(method.as_bytes()) || !target.starts_with('/') {
            return Err("the request line is malformed");
        }
        if !["HTTP/1.1", "HTTP/1.0"].contains(&version) {
            return Err("the version is neither HTTP/1.1 nor HTTP/1.0");
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Ok(Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: lines.map(header).collect::<Result<_, _>>()?,
            is_version_1_1: version == "HTTP/1.1",
        })
    }

    /// All values of a header, whose name is given in lower case.
    pub(crate) fn values(&self, name: &str) -> Vec<&[u8]> {
        let found = self.headers.iter().filter(|(known, _)| known == name);
        found.map(|(_, value)| value.as_slice()).collect()
    }

    /// The first value of a header in lower case, if it is UTF-8.
    pub(crate) fn lower_case(&self, name: &str) -> Option<String> {
        let values = self.values(name);
        let value = std::str::from_utf8(values.first()?).ok()?;
        Some(value.to_ascii_lowercase())
    }

    /// The length of the body; an error says what is wrong with it.
    pub(crate) fn length(&self) -> Result<Length, &'static str> {
        let lengths = self.values("content-length");
        let encodings = self.values("transfer-encoding");
        match (lengths.as_slice(), encodings.as_slice()) {
            ([], []) => Ok(Length::Exact(0)),
            ([length], []) => {
                if length.is_empty() || !length.iter().all(u8::is_ascii_digit) {
                    return Err("the content length is not a number");
                }
                let digits = std::str::from_utf8(length).unwrap_or_default();
                // A number that does not fit is above every bound.
                Ok(Length::Exact(digits.parse().unwrap_or(usize::MAX)))
            }
            ([], [encoding]) if encoding.eq_ignore_ascii_case(b"chunked") => Ok(Length::Chunked),
            _ => Err("the length of the body is ambiguous"),
        }
    }

    /// Whether the connection ends with this request.
    pub(crate) fn is_last(&self) -> bool {
        let connection = self.lower_case("connection").unwrap_or_default();
        !self.is_version_1_1 || connection.split(',').any(|option| option.trim() == "close")
    }

    /// Whether the client waits for a 100 before it sends the body.
    pub(crate) fn expects_continue(&self) -> bool {
        self.lower_case("expect").as_deref() == Some("100-continue")
    }
}

/// The lines of a head, which end with CR LF.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let end = bytes.windows(2).position(|pair| pair == b"\r\n");
        rest = end.map(|end| &bytes[end + 2..]);
        Some(&bytes[..end.unwrap_or(bytes.len())])
    })
}

fn header(line: &[u8]) -> Result<(String, Vec<u8>), &'static str> {
    let colon = line.iter().position(|byte| *byte == b':');
    let colon = colon.ok_or("a header has no colon")?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if !is_token(name) {
        return Err("the name of a header is malformed");
    }
    if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        return Err("the value of a header is malformed");
    }
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    Ok((name, value.to_vec()))
}

fn is_token(bytes: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(is_allowed)
}

impl Response {
    /// The bytes of the response, with the headers of the connection.
    pub(crate) fn encode(&self, date: &str, is_last: bool) -> Vec<u8> {
        let line = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        let mut bytes = line.into_bytes();
        let mut add = |name: &str, value: &[u8]| {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        };
        for (name, value) in &self.headers {
            add(name, value);
        }
        if !self.has_header("date") {
            add("Date", date.as_bytes());
        }
        if is_last {
            add("Connection", b"close");
        }
        if self.is_chunked {
            add("Transfer-Encoding", b"chunked");
        } else if self.status != 204 {
            add("Content-Length", self.body.len().to_string().as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        if self.is_chunked {
            let size = self.body.len().div_ceil(CHUNKS).max(1);
            for chunk in self.body.chunks(size) {
                bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        } else if self.status != 204 {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_keeps_bytes_and_repetitions() {
        let bytes = b"POST /orders?currency=EUR HTTP/1.1\r\nHost: a\r\nX-A:  \xFF \r\nx-a:b";
        let head = Head::parse(bytes).expect("a head");
        assert_eq!(
            (head.path.as_str(), head.query.as_str()),
            ("/orders", "currency=EUR")
        );
        assert_eq!(head.values("x-a"), [b"\xFF".as_slice(), b"b".as_slice()]);
        assert!(!head.is_last());
    }

    #[test]
    fn malformed_heads_are_refused() {
        for wrong in [
            "",
            "GET /",
            "GET / HTTP/2",
            "GET / HTTP/1.1\r\nno colon",
            "GET / HTTP/1.1\r\na: b\r\n folded: c",
            "GET / HTTP/1.1\r\na : b",
            "GET / HTTP/1.1\r\na: b\nc: d",
        ] {
            assert!(Head::parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_length_of_a_body_must_be_unambiguous() {
        let length = |headers: &str| {
            let head = Head::parse(format!("POST / HTTP/1.1{headers}").as_bytes());
            head.expect("a head").length().ok()
        };
        assert_eq!(length(""), Some(Length::Exact(0)));
        assert_eq!(length("\r\ncontent-length: 12"), Some(Length::Exact(12)));
        assert_eq!(
            length("\r\ntransfer-encoding: Chunked"),
            Some(Length::Chunked)
        );
        assert_eq!(length("\r\ncontent-length: 1\r\ncontent-length: 1"), None);
        assert_eq!(
            length("\r\ncontent-length: 1\r\ntransfer-encoding: chunked"),
            None
        );
        assert_eq!(length("\r\ncontent-length: -1"), None);
    }

    #[test]
    fn a_response_has_its_headers_in_order_and_its_body_in_chunks() {
        let mut response = Response::new(201)
            .header("Link", "<a>")
            .header("Link", "<b>")
            .with_body("abcde");
        let expected = "HTTP/1.1 201 Created\r\nLink: <a>\r\nLink: <b>\r\nDate: now\r\n";
        let plain = format!("{expected}Content-Length: 5\r\n\r\nabcde");
        assert_eq!(response.encode("now", false), plain.as_bytes());
        response.is_chunked = true;
        let chunked = format!(
            "{expected}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\nab\r\n2\r\ncd\r\n1\r\ne\r\n0\r\n\r\n"
        );
        assert_eq!(response.encode("now", true), chunked.as_bytes());
    }
}
