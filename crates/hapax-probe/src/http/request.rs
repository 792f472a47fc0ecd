//! A request, as it goes over the wire.

use crate::http::Target;

/// How the length of a body is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `Content-Length` is the length of the body.
    Length,
    /// `Content-Length` is larger than the body by this number of bytes.
    LengthTooLong(usize),
    /// The body is sent in chunks of at most this number of bytes.
    Chunked(usize),
}

/// A request. Header fields are sent in their order, byte for byte.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: Target,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) framing: Framing,
}

impl Request {
    pub(crate) fn new(method: &str, target: &Target) -> Self {
        Self {
            method: method.to_owned(),
            target: target.clone(),
            headers: Vec::new(),
            body: Vec::new(),
            framing: Framing::Length,
        }
    }

    /// Adds a header field, without regard to others of the same name.
    #[must_use]
    pub(crate) fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Replaces every header field of this name by one.
    #[must_use]
    pub(crate) fn replace_header(self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.without_header(name).header(name, value)
    }

    /// Removes every header field of this name.
    #[must_use]
    pub(crate) fn without_header(mut self, name: &str) -> Self {
        self.headers
            .retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self
    }

    #[must_use]
    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    #[must_use]
    pub(crate) fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    #[must_use]
    pub(crate) fn method(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }

    /// Returns the same request to another address.
    #[must_use]
    pub(crate) fn to(mut self, target: &Target) -> Self {
        self.target = target.clone();
        self
    }

    /// Whether the request may have a body. GET requests have none.
    fn has_body(&self) -> bool {
        !(self.body.is_empty() && matches!(self.method.as_str(), "GET" | "HEAD"))
    }

    /// Returns the request line and the header fields, with the empty line.
    pub(crate) fn head(&self) -> Vec<u8> {
        let line = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\n",
            self.method,
            self.target.path_and_query(),
            self.target.authority()
        );
        let mut head = line.into_bytes();
        for (name, value) in &self.headers {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        }
        if self.has_body() {
            let framing = match self.framing {
                Framing::Length => format!("Content-Length: {}\r\n", self.body.len()),
                Framing::LengthTooLong(by) => {
                    format!("Content-Length: {}\r\n", self.body.len() + by)
                }
                Framing::Chunked(_) => "Transfer-Encoding: chunked\r\n".to_owned(),
            };
            head.extend_from_slice(framing.as_bytes());
        }
        head.extend_from_slice(b"Connection: close\r\n\r\n");
        head
    }

    /// Returns the body as it goes over the wire.
    pub(crate) fn framed_body(&self) -> Vec<u8> {
        let Framing::Chunked(size) = self.framing else {
            return self.body.clone();
        };
        let mut framed = Vec::new();
        for chunk in self.body.chunks(size.max(1)) {
            framed.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            framed.extend_from_slice(chunk);
            framed.extend_from_slice(b"\r\n");
        }
        framed.extend_from_slice(b"0\r\n\r\n");
        framed
    }

    /// Returns a short description for messages: method and path, with secrets masked.
    pub(crate) fn describe(&self) -> String {
        format!("{} {}", self.method, self.target.masked_path_and_query())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        let target = "http://localhost:81/orders?a=1".parse().expect("a URL");
        Request::new("POST", &target)
            .header("Idempotency-Key", "k")
            .body("{}")
    }

    #[test]
    fn a_request_is_written_byte_for_byte() {
        let head = request().head();
        assert_eq!(
            String::from_utf8_lossy(&head),
            "POST /orders?a=1 HTTP/1.1\r\nHost: localhost:81\r\nIdempotency-Key: k\r\nContent-Length: \
             2\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn a_body_is_chunked() {
        let request = request().body("abcde").framing(Framing::Chunked(3));
        assert_eq!(
            request.framed_body(),
            b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n".to_vec()
        );
    }

    #[test]
    fn a_header_is_replaced_whatever_its_case() {
        let request = request().replace_header("idempotency-key", "other");
        assert_eq!(
            request.headers,
            [("idempotency-key".to_owned(), b"other".to_vec())]
        );
    }
}
