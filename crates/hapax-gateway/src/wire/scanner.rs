//! Scanner of the requests of an HTTP/1 connection: finds their lines and the ends of their bodies.
//!
//! It refuses a line of a head, of a chunk or of a trailer that ends in a bare LF, a request with
//! both `Content-Length` and `Transfer-Encoding`, and lines that are too long. All other errors are
//! left to hyper, which reads the same bytes afterwards: after one of them, the scanner stops.

use std::mem;

/// Longest head, or list of trailers, in bytes. hyper has a lower bound.
const HEAD_BYTES_MAX: usize = 128 * 1024;
/// Longest line before a chunk in bytes, with its extensions.
const CHUNK_LINE_BYTES_MAX: usize = 1024;

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Ambiguity {
    #[error("a line ends in a bare LF")]
    BareLf,
    #[error("a request has both Content-Length and Transfer-Encoding")]
    TwoLengths,
    #[error("a head, or a chunk extension, is too long")]
    TooLong,
}

/// Where the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The request line and the header lines.
    Head,
    /// A body, or a chunk, of which this many bytes are missing.
    Body { missing: u64, is_chunk: bool },
    /// The line before a chunk.
    ChunkLine,
    /// The lines after the last chunk.
    Trailers,
    /// Not checked.
    Stopped,
}

/// The state between two reads.
pub(super) struct Scanner {
    state: State,
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// The bytes of the head so far.
    head_bytes: usize,
    is_first_line: bool,
    length: Option<u64>,
    has_encoding: bool,
}

impl Scanner {
    pub(super) fn new() -> Self {
        Self {
            state: State::Head,
            line: Vec::new(),
            head_bytes: 0,
            is_first_line: true,
            length: None,
            has_encoding: false,
        }
    }

    /// Stops to check.
    pub(super) fn stop(&mut self) {
        self.state = State::Stopped;
        self.line = Vec::new();
    }

    /// Whether all bytes so far belong to complete requests.
    pub(super) fn is_between_requests(&self) -> bool {
        self.state == State::Head && self.is_first_line && self.line.is_empty()
    }

    /// Checks the next bytes.
    pub(super) fn scan(&mut self, mut bytes: &[u8]) -> Result<(), Ambiguity> {
        while !bytes.is_empty() {
            match self.state {
                State::Stopped => return Ok(()),
                State::Body { missing, is_chunk } => {
                    let taken = usize::try_from(missing)
                        .unwrap_or(usize::MAX)
                        .min(bytes.len());
                    bytes = &bytes[taken..];
                    self.body(missing - taken as u64, is_chunk);
                }
                State::Head | State::ChunkLine | State::Trailers => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let taken = end.map_or(bytes.len(), |end| end + 1);
                    self.line.extend_from_slice(&bytes[..taken]);
                    bytes = &bytes[taken..];
                    self.check_length()?;
                    if end.is_some() {
                        let line = mem::take(&mut self.line);
                        let line = line.strip_suffix(b"\r\n").ok_or(Ambiguity::BareLf)?;
                        self.line(line)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn check_length(&self) -> Result<(), Ambiguity> {
        let max = match self.state {
            State::ChunkLine => CHUNK_LINE_BYTES_MAX,
            _ => HEAD_BYTES_MAX.saturating_sub(self.head_bytes),
        };
        if self.line.len() > max {
            return Err(Ambiguity::TooLong);
        }
        Ok(())
    }

    /// Continues after bytes of a body.
    fn body(&mut self, missing: u64, is_chunk: bool) {
        self.state = match (missing, is_chunk) {
            (0, true) => State::ChunkLine,
            (0, false) => State::Head,
            (missing, is_chunk) => State::Body { missing, is_chunk },
        };
    }

    /// Checks a complete line.
    fn line(&mut self, line: &[u8]) -> Result<(), Ambiguity> {
        self.head_bytes += line.len() + 2;
        match self.state {
            State::Head if self.is_first_line => self.request_line(line),
            State::Head if line.is_empty() => return self.end_of_head(),
            State::Head => self.header(line),
            State::ChunkLine => self.chunk(line),
            State::Trailers if line.is_empty() => self.next_request(),
            State::Trailers | State::Body { .. } | State::Stopped => {}
        }
        Ok(())
    }

    fn request_line(&mut self, line: &[u8]) {
        // Empty lines may precede a request.
        if line.is_empty() {
            return;
        }
        self.is_first_line = false;
        // The preface of HTTP/2.
        if line == b"PRI * HTTP/2.0" {
            self.stop();
        }
    }

    fn header(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return self.stop();
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.has_encoding = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let text = std::str::from_utf8(value).ok();
            match text.and_then(|text| text.parse().ok()) {
                Some(length) => self.length = Some(length),
                None => self.stop(),
            }
        }
    }

    fn end_of_head(&mut self) -> Result<(), Ambiguity> {
        match (self.length, self.has_encoding) {
            (Some(_), true) => return Err(Ambiguity::TwoLengths),
            (None, true) => {
                self.head_bytes = 0;
                self.state = State::ChunkLine;
            }
            (length, false) => {
                self.next_request();
                self.body(length.unwrap_or(0), false);
            }
        }
        Ok(())
    }

    fn chunk(&mut self, line: &[u8]) {
        // The end of a chunk is an empty line, which is part of its bytes.
        self.head_bytes = 0;
        let digits = line.split(|byte| *byte == b';').next();
        let digits = digits.unwrap_or_default().trim_ascii();
        let text = std::str::from_utf8(digits).unwrap_or_default();
        match u64::from_str_radix(text, 16).map(|size| (size, size.checked_add(2))) {
            Ok((0, _)) => self.state = State::Trailers,
            Ok((_, Some(missing))) => {
                self.state = State::Body {
                    missing,
                    is_chunk: true,
                };
            }
            Ok((_, None)) | Err(_) => self.stop(),
        }
    }

    /// Begins the next request of the connection.
    fn next_request(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_with_sound_requests_passes_however_its_bytes_arrive() {
        let sent = b"\r\nPOST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n\n\n\nGET / HTTP/1.1\r\n\r\n\
            POST /b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2;a=b\r\n\n\n\r\n0\r\nx: 1\r\n\r\n\
            GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        for size in 1..=sent.len() {
            let mut scanner = Scanner::new();
            for bytes in sent.chunks(size) {
                assert_eq!(scanner.scan(bytes), Ok(()), "{size}");
            }
            assert!(scanner.is_between_requests(), "{size}");
        }
    }

    #[test]
    fn an_ambiguous_request_is_found_wherever_it_is() {
        let head = "POST / HTTP/1.1\r\nhost: a\r\n";
        let both = format!("{head}content-length: 3\r\nTransfer-Encoding: chunked\r\n\r\n");
        check(&both, Ambiguity::TwoLengths);
        let both = format!("{head}transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n");
        check(&both, Ambiguity::TwoLengths);
        check("POST / HTTP/1.1\nhost: a\r\n\r\n", Ambiguity::BareLf);
        check(&format!("{head}x: 1\n\r\n"), Ambiguity::BareLf);
        check(&format!("{head}\n"), Ambiguity::BareLf);
        let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n");
        check(&format!("{chunked}2\n{{}}\r\n"), Ambiguity::BareLf);
        check(&format!("{chunked}0\r\nx: 1\n"), Ambiguity::BareLf);
        let long = "x".repeat(CHUNK_LINE_BYTES_MAX);
        check(&format!("{chunked}2;{long}"), Ambiguity::TooLong);
        let long = "x".repeat(HEAD_BYTES_MAX);
        check(&format!("{head}{long}"), Ambiguity::TooLong);
    }

    #[test]
    fn a_request_that_has_begun_is_not_between_requests() {
        let head = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        let sent = [&head[..], b"2\r\n{}\r\n0\r\n\r\n"].concat();
        let mut scanner = Scanner::new();
        for (at, byte) in sent.iter().enumerate() {
            assert_eq!(scanner.is_between_requests(), at == 0, "{at}");
            assert_eq!(scanner.scan(&[*byte]), Ok(()));
        }
        assert!(scanner.is_between_requests());
        scanner.stop();
        assert!(!scanner.is_between_requests());
    }

    #[test]
    fn other_protocols_are_not_checked() {
        let mut scanner = Scanner::new();
        assert_eq!(
            scanner.scan(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\n\n"),
            Ok(())
        );
        let mut scanner = Scanner::new();
        assert_eq!(scanner.scan(b"GET / HTTP/1.1\r\n\r\n"), Ok(()));
        scanner.stop();
        assert_eq!(scanner.scan(b"\n\n"), Ok(()));
    }

    #[track_caller]
    fn check(sent: &str, expected: Ambiguity) {
        let before = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        for size in [1, 7, sent.len()] {
            for sent in [sent.to_owned(), format!("{before}{sent}")] {
                let mut scanner = Scanner::new();
                let mut chunks = sent.as_bytes().chunks(size);
                let found = chunks.find_map(|bytes| scanner.scan(bytes).err());
                assert_eq!(found, Some(expected), "{sent:?}");
            }
        }
    }
}
