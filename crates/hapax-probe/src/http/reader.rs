//! Reads a response from the bytes of a connection, piece by piece.
//!
//! Every byte is looked at once or twice, however small the pieces are, so that a server that sends
//! byte by byte cannot keep the probe busy. A response whose length is ambiguous is not valid: the probe
//! would otherwise compare a part of it.

use std::time::Duration;

use crate::http::response::{Field, Response};

/// The maximum number of header fields of a response.
const FIELDS_MAX: usize = 128;
/// The maximum size of a head, and of trailers, in bytes.
const HEAD_MAX: usize = 64 * 1024;
/// The maximum size of the line before a chunk in bytes.
const LINE_MAX: usize = 4 * 1024;
/// The maximum number of interim responses (1xx).
const INTERIM_MAX: usize = 16;

/// What a reader waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// A body of this length.
    Length(usize),
    /// A body that ends with the connection.
    ToEnd,
    /// The line with the length of a chunk.
    Line,
    /// A chunk of this length, and the end of its line.
    Chunk(usize),
    Trailers,
    Complete,
}

/// Reads one response.
#[derive(Debug)]
pub(crate) struct Reader {
    state: State,
    bytes: Vec<u8>,
    /// The number of bytes that were used.
    used: usize,
    /// The number of bytes in which the end of a line or of a head was searched for.
    searched: usize,
    interim: usize,
    answer: Response,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Head,
            bytes: Vec::new(),
            used: 0,
            searched: 0,
            interim: 0,
            answer: Response {
                status: 0,
                fields: Vec::new(),
                body: Vec::new(),
                elapsed: Duration::ZERO,
            },
        }
    }

    /// Returns the number of bytes that were received.
    pub(crate) fn received(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the next bytes, and returns whether the response is complete. An error says why they are
    /// not a valid response.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<bool, String> {
        self.bytes.extend_from_slice(bytes);
        while self.advance()? {}
        Ok(self.state == State::Complete)
    }

    /// Returns the response when it is complete or the connection has ended, or `None` if it was cut.
    pub(crate) fn finish(mut self, elapsed: Duration) -> Option<Response> {
        match self.state {
            State::Complete => {}
            State::ToEnd => self.answer.body = self.bytes.split_off(self.used),
            _ => return None,
        }
        self.answer.elapsed = elapsed;
        Some(self.answer)
    }

    /// Uses the next part of the response, and returns whether it was there.
    fn advance(&mut self) -> Result<bool, String> {
        match self.state {
            State::Head => self.head(),
            State::Length(length) => Ok(self.body(length)),
            State::Line => self.line(),
            State::Chunk(length) => self.chunk(length),
            State::Trailers => self.trailers(),
            State::ToEnd | State::Complete => Ok(false),
        }
    }

    fn head(&mut self) -> Result<bool, String> {
        let Some(end) = self.empty_line(self.used, "head")? else {
            return Ok(false);
        };
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut head = httparse::Response::new(&mut fields);
        match head.parse(&self.bytes[self.used..end]) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) => return Err("the head is not complete".to_owned()),
            Err(error) => return Err(error.to_string()),
        }
        let status = head.code.unwrap_or_default();
        let fields = head.headers.iter().map(|it| Field {
            name: it.name.to_owned(),
            value: it.value.to_vec(),
        });
        self.answer.fields = fields.collect();
        self.answer.status = status;
        self.used = end;
        // 100 Continue, 103 Early Hints: the response itself follows.
        if (100..200).contains(&status) {
            self.interim += 1;
            if self.interim > INTERIM_MAX {
                return Err(format!("it has more than {INTERIM_MAX} interim responses"));
            }
            return Ok(true);
        }
        self.state = framing(&self.answer)?;
        Ok(true)
    }

    fn body(&mut self, length: usize) -> bool {
        match self.bytes[self.used..].get(..length) {
            Some(body) => {
                self.answer.body = body.to_vec();
                self.state = State::Complete;
                true
            }
            None => false,
        }
    }

    fn line(&mut self) -> Result<bool, String> {
        let from = self.searched.max(self.used);
        let newline = self.bytes[from..].iter().position(|it| *it == b'\n');
        self.searched = self.bytes.len();
        let end = newline.map_or(self.bytes.len(), |at| from + at + 1);
        let line = &self.bytes[self.used..end];
        if line.len() > LINE_MAX {
            return Err(format!(
                "the line of a chunk is longer than {LINE_MAX} bytes"
            ));
        }
        if newline.is_none() {
            return Ok(false);
        }
        let length = chunk_length(line).ok_or("a chunk has no valid length")?;
        self.used = end;
        // What follows the line was searched for nothing yet.
        self.searched = end;
        self.state = match length {
            0 => State::Trailers,
            length => State::Chunk(length),
        };
        Ok(true)
    }

    fn chunk(&mut self, length: usize) -> Result<bool, String> {
        let rest = &self.bytes[self.used..];
        let Some((chunk, after)) = rest.split_at_checked(length) else {
            return Ok(false);
        };
        match after {
            [b'\r', b'\n', ..] => {}
            [] | [b'\r'] => return Ok(false),
            _ => return Err("a chunk is longer than its length".to_owned()),
        }
        self.answer.body.extend_from_slice(chunk);
        self.used += length + 2;
        self.state = State::Line;
        Ok(true)
    }

    fn trailers(&mut self) -> Result<bool, String> {
        // Without trailers, the empty line follows the line of the last chunk, whose end counts.
        let Some(end) = self.empty_line(self.used - 1, "trailers")? else {
            return Ok(false);
        };
        self.used = end;
        self.state = State::Complete;
        Ok(true)
    }

    /// Returns the end of the first empty line after `start`, if it was received.
    fn empty_line(&mut self, start: usize, what: &str) -> Result<Option<usize>, String> {
        let from = self.searched.saturating_sub(2).max(start);
        let rest = &self.bytes[from..];
        let end = (0..rest.len()).find_map(|at| match &rest[at..] {
            [b'\n', b'\r', b'\n', ..] => Some(from + at + 3),
            [b'\n', b'\n', ..] => Some(from + at + 2),
            _ => None,
        });
        self.searched = end.unwrap_or(self.bytes.len());
        if end.unwrap_or(self.bytes.len()) - start > HEAD_MAX {
            return Err(format!("{what}: more than {HEAD_MAX} bytes"));
        }
        Ok(end)
    }
}

/// Returns how the body of a response ends.
fn framing(answer: &Response) -> Result<State, String> {
    if matches!(answer.status, 204 | 304) {
        return Ok(State::Complete);
    }
    if answer
        .values("transfer-encoding")
        .pop()
        .is_some_and(is_chunked)
    {
        return Ok(State::Line);
    }
    let mut lengths = answer
        .values("content-length")
        .into_iter()
        .map(|it| String::from_utf8_lossy(it).trim().to_owned());
    let Some(text) = lengths.next() else {
        return Ok(State::ToEnd);
    };
    if let Some(other) = lengths.find(|it| *it != text) {
        return Err(format!("Content-Length is {text:?} and {other:?}"));
    }
    // A sign, which parse accepts, is not valid.
    let digits = text.bytes().all(|it| it.is_ascii_digit());
    match text.parse::<usize>() {
        Ok(0) if digits => Ok(State::Complete),
        Ok(length) if digits => Ok(State::Length(length)),
        _ => Err(format!("Content-Length is {text:?}")),
    }
}

/// Whether the last transfer coding is `chunked`.
fn is_chunked(value: &[u8]) -> bool {
    let value = String::from_utf8_lossy(value);
    let last = value.rsplit(',').next().unwrap_or_default();
    last.trim().eq_ignore_ascii_case("chunked")
}

/// Returns the length in the line before a chunk.
fn chunk_length(line: &[u8]) -> Option<usize> {
    // An empty line would be a length of 0.
    if !line.first()?.is_ascii_hexdigit() {
        return None;
    }
    match httparse::parse_chunk_size(line) {
        Ok(httparse::Status::Complete((used, length))) if used == line.len() => {
            usize::try_from(length).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a response in pieces of this size. `None` is a response that goes on.
    fn read(bytes: &[u8], size: usize, at_end: bool) -> Result<Option<Response>, String> {
        let mut reader = Reader::new();
        let mut complete = false;
        for piece in bytes.chunks(size) {
            complete = reader.read(piece)?;
            if complete {
                break;
            }
        }
        Ok((complete || at_end)
            .then(|| reader.finish(Duration::ZERO))
            .flatten())
    }

    fn complete(bytes: &[u8], at_end: bool) -> Response {
        for size in [1, 3] {
            assert!(matches!(read(bytes, size, at_end), Ok(Some(_))), "{size}");
        }
        let read = read(bytes, bytes.len(), at_end).expect("a valid response");
        read.expect("a complete response")
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
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n".to_vec();
        let chunks = b"3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n";
        let whole = [head.as_slice(), chunks, b"\r\n"].concat();
        assert_eq!(complete(&whole, false).body, b"abcde");
        for cut in 1..whole.len() {
            let part = read(&whole[..cut], 7, true);
            assert!(matches!(part, Ok(None)), "at {cut}: {part:?}");
        }
        let trailers = [head.as_slice(), chunks, b"X-A: 1\r\nX-B: 2\r\n\r\n"].concat();
        assert_eq!(complete(&trailers, false).body, b"abcde");
    }

    #[test]
    fn interim_responses_are_skipped_up_to_a_bound() {
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
        let last = b"HTTP/1.1 204 No Content\r\n\r\n";
        let of = |count: usize| [interim.repeat(count).as_slice(), last].concat();
        assert_eq!(complete(&of(INTERIM_MAX), false).status, 204);
        assert!(read(&of(INTERIM_MAX + 1), 9, false).is_err());
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_connection() {
        let bytes = b"HTTP/1.1 200 OK\r\n\r\nabc";
        assert!(matches!(read(bytes, 4, false), Ok(None)));
        assert_eq!(complete(bytes, true).body, b"abc");
    }

    #[test]
    fn an_ambiguous_length_is_not_valid() {
        for fields in [
            "Content-Length: +3\r\n\r\nabc",
            "Content-Length: -3\r\n\r\nabc",
            "Content-Length: \r\n\r\nabc",
            "Content-Length: 99999999999999999999999\r\n\r\nabc",
            "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            "Content-Length: 3, 4\r\n\r\nabcd",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n\r\n\r\n",
        ] {
            let bytes = format!("HTTP/1.1 200 OK\r\n{fields}");
            for size in [1, 1024] {
                let read = read(bytes.as_bytes(), size, true);
                assert!(read.is_err(), "{fields:?}: {read:?}");
            }
        }
        let twice = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(complete(twice, false).body, b"abc");
    }

    #[test]
    fn a_head_a_chunk_line_and_trailers_have_a_bound() {
        let long = "a".repeat(HEAD_MAX + 1);
        for bytes in [
            format!("HTTP/1.1 200 OK\r\nX: {long}"),
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{long}"),
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: {long}"),
        ] {
            assert!(read(bytes.as_bytes(), 1000, false).is_err());
        }
    }
}
