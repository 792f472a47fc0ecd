//! Response to a call as server-sent events.
//!
//! The response to a call may be a stream: notifications and requests of the server first, the
//! response itself at last. The collector finds the response, with a bound, because only a complete
//! response may be stored. The messages before it can be taken for the client while the stream runs;
//! they are not stored.

use std::{fmt, ops::Range};

use serde_json::value::RawValue;

use super::{
    members::{Members, is_too_deep},
    response::{RequestId, response_id},
};

/// The byte order mark, which a stream may begin with.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Whether the response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// The response has not come yet.
    Open,
    /// The response has come. What follows is ignored.
    Complete,
}

/// Why a stream has no response that can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The stream is too large to be stored.
    #[error("the stream is larger than the bound before its response")]
    TooLarge,
    /// The stream has ended without the response.
    #[error("the stream has ended without the response")]
    Incomplete,
    /// A message is nested too deeply.
    #[error("a message of the stream is nested too deeply")]
    Depth,
    /// The response has the id of another request.
    #[error("the response in the stream has the id of another request")]
    AnotherId,
    /// A message is an object with a member that occurs twice. The client may read it as the response.
    #[error("a message of the stream is ambiguous")]
    Ambiguous,
}

/// Collects the stream with the response to one request.
pub struct StreamCollector {
    id: RequestId,
    bytes_max: usize,
    bytes: Vec<u8>,
    scanner: Scanner,
    /// Where the last complete message before the response ends.
    ready: usize,
    /// Where the messages end that were taken.
    taken: usize,
    response: Option<Vec<u8>>,
}

impl StreamCollector {
    /// A collector of at most `bytes_max` bytes.
    pub fn new(id: RequestId, bytes_max: usize) -> Self {
        Self {
            id,
            bytes_max,
            bytes: Vec::new(),
            scanner: Scanner::default(),
            ready: 0,
            taken: 0,
            response: None,
        }
    }

    /// Adds the next bytes of the stream.
    ///
    /// # Errors
    /// Fails if the stream cannot be stored. The collector must not be used any more.
    pub fn push(&mut self, chunk: &[u8]) -> Result<StreamState, StreamError> {
        if self.response.is_some() {
            return Ok(StreamState::Complete);
        }
        if chunk.len() > self.bytes_max.saturating_sub(self.bytes.len()) {
            return Err(StreamError::TooLarge);
        }
        self.bytes.extend_from_slice(chunk);
        self.scan(false)
    }

    /// The events before the response that have arrived since the last call, as they were sent.
    pub fn take_messages(&mut self) -> Vec<u8> {
        let messages = self.bytes[self.taken..self.ready].to_vec();
        self.taken = self.ready;
        messages
    }

    /// The response as JSON. Before it has come, call this only after the stream has ended.
    ///
    /// # Errors
    /// Fails if the response has not come.
    pub fn finish(mut self) -> Result<Vec<u8>, StreamError> {
        if self.response.is_none() {
            self.scan(true)?;
        }
        self.response.ok_or(StreamError::Incomplete)
    }

    fn scan(&mut self, is_end: bool) -> Result<StreamState, StreamError> {
        while let Some(place) = self.scanner.next(&self.bytes, is_end) {
            let end = place.end;
            let event = Event::read(&self.bytes, place);
            if is_too_deep(&event.data) {
                return Err(StreamError::Depth);
            }
            if event.is_ambiguous() {
                return Err(StreamError::Ambiguous);
            }
            match event.answers(&self.id) {
                None => self.ready = end,
                Some(false) => return Err(StreamError::AnotherId),
                Some(true) => {
                    self.response = Some(event.data);
                    return Ok(StreamState::Complete);
                }
            }
        }
        Ok(StreamState::Open)
    }
}

impl fmt::Debug for StreamCollector {
    /// Omits the content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamCollector")
            .field("bytes", &self.bytes.len())
            .field("bytes_max", &self.bytes_max)
            .field("has_response", &self.response.is_some())
            .finish_non_exhaustive()
    }
}

/// A message as an event.
pub fn event(message: &[u8]) -> Vec<u8> {
    let mut event = b"event: message\n".to_vec();
    // A line break would end the field. Between the tokens of JSON, it says nothing.
    for line in message.split(|byte| matches!(byte, b'\r' | b'\n')) {
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(line);
        event.push(b'\n');
    }
    event.push(b'\n');
    event
}

/// Finds the ends of events. Each byte is looked at once.
#[derive(Default)]
struct Scanner {
    event: usize,
    line: usize,
    at: usize,
}

impl Scanner {
    /// The next complete event, with the blank line that ends it. `is_end`: no byte will follow.
    fn next(&mut self, bytes: &[u8], is_end: bool) -> Option<Range<usize>> {
        while let Some(byte) = bytes.get(self.at) {
            if !matches!(byte, b'\r' | b'\n') {
                self.at += 1;
                continue;
            }
            // The second half of a line break may still be on its way.
            if *byte == b'\r' && self.at + 1 == bytes.len() && !is_end {
                return None;
            }
            let is_blank = self.line == self.at;
            let is_pair = *byte == b'\r' && bytes.get(self.at + 1) == Some(&b'\n');
            self.at += if is_pair { 2 } else { 1 };
            self.line = self.at;
            if is_blank {
                let event = self.event..self.at;
                self.event = self.at;
                return Some(event);
            }
        }
        None
    }
}

/// An event.
struct Event {
    data: Vec<u8>,
    has_data: bool,
    /// Whether its type is `message`, which is also the default.
    is_message: bool,
}

impl Event {
    fn read(stream: &[u8], place: Range<usize>) -> Self {
        let mut event = Self {
            data: Vec::new(),
            has_data: false,
            is_message: true,
        };
        let mut start = place.start;
        if start == 0 && stream.starts_with(BOM) {
            start = BOM.len();
        }
        // The line feed of a pair of line breaks is an empty line, which says nothing.
        for line in stream[start..place.end].split(|byte| matches!(byte, b'\r' | b'\n')) {
            event.line(line);
        }
        event
    }

    fn line(&mut self, line: &[u8]) {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => self.is_message = matches!(value, b"" | b"message"),
            _ => {}
        }
    }

    /// Whether the event is an object that readers may take for different messages.
    fn is_ambiguous(&self) -> bool {
        let is_object = self.data.trim_ascii_start().starts_with(b"{");
        let is_json = || serde_json::from_slice::<&RawValue>(&self.data).is_ok();
        self.is_message && is_object && Members::parse(&self.data).is_none() && is_json()
    }

    /// Whether the event is the response to a request. `None` if it is not a response.
    fn answers(&self, id: &RequestId) -> Option<bool> {
        if !self.is_message {
            return None;
        }
        let message = Members::parse(&self.data)?;
        response_id(&message).map(|found| id.belongs_to(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = concat!(
        "\u{feff}: hello\r\n\r\n",
        "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\n",
        "data:\"params\":{\"progressToken\":1,\"progress\":1}}\n\n",
        "id: 7\rdata: {\"id\":\"s1\",\"method\":\"sampling/createMessage\",\"params\":{}}\r\r",
        "event: ping\ndata: {\"id\":1,\"result\":{}}\n\n",
        "data: {\"jsonrpc\":\"2.0\",\ndata:  \"id\": 1 ,\ndata: \"result\":{\"id\":1}}\nretry: 5\n\n",
    );

    fn id(json: &str) -> RequestId {
        RequestId::parse(json).unwrap()
    }

    const RESPONSE: &str = "{\"jsonrpc\":\"2.0\",\n \"id\": 1 ,\n\"result\":{\"id\":1}}";

    #[test]
    fn a_stream_is_complete_with_its_response_however_it_is_cut() {
        let stream = format!("{STREAM}data: {{\"late\":1}}\n\n");
        let (before, _) =
            STREAM.split_at(STREAM.find("data: {\"jsonrpc\":\"2.0\",\ndata:  ").unwrap());
        for size in [1, 2, 3, 7, 64, stream.len()] {
            let mut collector = StreamCollector::new(id("1"), 4096);
            let (mut states, mut messages) = (Vec::new(), Vec::new());
            for chunk in stream.as_bytes().chunks(size) {
                states.push(collector.push(chunk).unwrap());
                messages.extend(collector.take_messages());
            }
            assert_eq!(states.last(), Some(&StreamState::Complete), "{size}");
            assert_eq!(messages, before.as_bytes(), "{size}");
            assert_eq!(collector.finish().unwrap(), RESPONSE.as_bytes(), "{size}");
        }
    }

    #[test]
    fn a_message_with_line_breaks_is_one_event() {
        let event = String::from_utf8(event(RESPONSE.as_bytes())).unwrap();
        let expected = "event: message\ndata: {\"jsonrpc\":\"2.0\",\ndata:  \"id\": 1 ,\n\
                        data: \"result\":{\"id\":1}}\n\n";
        assert_eq!(event, expected);
        let mut collector = StreamCollector::new(id("1"), 4096);
        let state = collector.push(event.as_bytes()).unwrap();
        assert_eq!(state, StreamState::Complete);
        assert_eq!(collector.finish().unwrap(), RESPONSE.as_bytes());
    }

    #[test]
    fn a_stream_without_its_whole_response_is_never_complete() {
        let whole = STREAM.as_bytes();
        // Without the last line feed, the event has not ended.
        for length in 0..whole.len() {
            let mut collector = StreamCollector::new(id("1"), 4096);
            assert_eq!(collector.push(&whole[..length]).unwrap(), StreamState::Open);
            assert_eq!(collector.finish(), Err(StreamError::Incomplete), "{length}");
        }
    }

    #[test]
    fn a_stream_that_ends_with_a_carriage_return_is_complete_at_its_end() {
        let mut collector = StreamCollector::new(id("1"), 4096);
        let stream = b"data: {\"id\":1,\"error\":{}}\r\r";
        assert_eq!(collector.push(stream).unwrap(), StreamState::Open);
        assert_eq!(collector.finish().unwrap(), b"{\"id\":1,\"error\":{}}");
    }

    #[test]
    fn a_stream_that_lies_or_is_too_large_or_too_deep_is_refused() {
        let push = |stream: &str, bytes_max| {
            StreamCollector::new(id("1"), bytes_max).push(stream.as_bytes())
        };
        let other = "data: {\"id\":2,\"result\":{}}\n\n";
        assert_eq!(push(other, 4096), Err(StreamError::AnotherId));
        assert_eq!(push(other, other.len() - 1), Err(StreamError::TooLarge));
        let twice = "data: {\"id\":2,\"id\":1,\"result\":{}}\n\n";
        assert_eq!(push(twice, 4096), Err(StreamError::Ambiguous));
        let deep = format!("data: {}\n\n", "[".repeat(500));
        assert_eq!(push(&deep, 4096), Err(StreamError::Depth));
        for ignored in [
            "data\n\n",
            "data:\n\n",
            "data: null\n\n",
            "data: {\"id\":1}\n\n",
            "data: {\"id\":1,\n\n",
            "data: {\"method\":\"m\",\"params\":NaN}\n\n",
            "\n\n",
        ] {
            assert_eq!(push(ignored, 4096), Ok(StreamState::Open), "{ignored:?}");
        }
    }
}
