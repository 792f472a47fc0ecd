//! Request log: one line for each request on a protected operation and for each received message.
//!
//! A line says how the request or the message ended, and contains the short hash of the key. It
//! never contains the key, a payload or a header, apart from the id of a message. All lines have the
//! target [`TARGET`], by which a subscriber can filter them. If a line is not written, its values
//! are not formatted.

use std::{fmt, time::Duration};

use sha2::{Digest, Sha256};
use tracing::Level;

use crate::{inbox::Message, key::short_hash};

/// The target of the lines.
pub const TARGET: &str = "hapax::requests";

/// The outcomes to which the sample applies. Lines with other outcomes, and lines of failures (5xx),
/// are always written.
const SAMPLED: [&str; 4] = ["created", "replayed", "accepted", "duplicate"];

/// Which lines are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestLog {
    /// The level of the lines.
    pub level: LineLevel,
    /// The share of the keys and messages that are logged if they end as usual (`created`,
    /// `replayed`, `accepted`, `duplicate`) and not with a failure (5xx) that is stored: 0 is none, 1
    /// is all. Either all of these lines about a key are written or none.
    pub sample: f64,
}

/// The level of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineLevel {
    /// The lines are written at `info`.
    #[default]
    Info,
    /// The lines are written at `debug`.
    Debug,
    /// No line is written.
    Off,
}

/// The content of a line. Values that are absent are left out.
#[derive(Clone, Copy, Default)]
pub struct Line<'a> {
    /// The operation of a request.
    pub operation: Option<&'a str>,
    /// The consumer of a message.
    pub consumer: Option<&'a str>,
    /// The sender of a message.
    pub source: Option<&'a str>,
    /// The id of a message: the sender's, or a key that is derived from the payload.
    pub event_id: Option<&'a str>,
    /// The key of a request, of which only the short hash is written.
    pub key: Option<&'a str>,
    /// How the request or the message ended.
    pub outcome: &'static str,
    /// The status of the response.
    pub status: Option<u16>,
    /// The code of the problem that is the response.
    pub error_code: Option<&'a str>,
    /// The state of the key or the message before, if it is known.
    pub from_state: Option<&'static str>,
    /// The state of the key or the message afterwards, if it is known.
    pub to_state: Option<&'static str>,
    /// The number of the attempt, counted by the sender.
    pub attempt: Option<u32>,
    /// The id of the request.
    pub request_id: Option<&'a str>,
    /// The correlation id of the request or the message.
    pub correlation_id: Option<&'a str>,
    /// The tenant.
    pub tenant: Option<&'a str>,
    /// The time since the request or the message arrived.
    pub took: Duration,
}

macro_rules! write_line {
    ($level:expr, $line:ident) => {
        tracing::event!(
            target: TARGET,
            $level,
            operation = $line.operation,
            consumer = $line.consumer,
            source = $line.source,
            event_id = $line.event_id,
            key_hash = $line.key.map(short_hash),
            outcome = $line.outcome,
            status = $line.status,
            error_code = $line.error_code,
            from_state = $line.from_state,
            to_state = $line.to_state,
            attempt = $line.attempt,
            request_id = $line.request_id,
            correlation_id = $line.correlation_id,
            tenant = $line.tenant,
            duration_us = u64::try_from($line.took.as_micros()).unwrap_or(u64::MAX),
            "{}",
            $line.subject()
        )
    };
}

impl RequestLog {
    /// Writes a line, unless the level or the sample leaves it out.
    pub fn write(&self, line: &Line<'_>) {
        match self.level {
            LineLevel::Info if self.takes(line) => write_line!(Level::INFO, line),
            LineLevel::Debug if self.takes(line) => write_line!(Level::DEBUG, line),
            LineLevel::Info | LineLevel::Debug | LineLevel::Off => {}
        }
    }

    fn takes(&self, line: &Line<'_>) -> bool {
        let is_failure = line.status.is_some_and(|status| status >= 500);
        if self.sample >= 1.0 || is_failure || !SAMPLED.contains(&line.outcome) {
            return true;
        }
        let id = line.key.or(line.event_id).or(line.request_id);
        let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(id.unwrap_or_default()));
        f64::from(u32::from_be_bytes([a, b, c, d])) < self.sample * 2.0_f64.powi(32)
    }
}

impl Default for RequestLog {
    /// All lines at `info`.
    fn default() -> Self {
        Self {
            level: LineLevel::Info,
            sample: 1.0,
        }
    }
}

impl<'a> Line<'a> {
    /// Creates the line of a message that was accepted now or before, or was not accepted.
    pub fn message(message: &'a Message, outcome: &'static str) -> Self {
        let (from_state, to_state) = match outcome {
            "accepted" => (Some("new"), Some("accepted")),
            "duplicate" | "mismatch" => (Some("accepted"), Some("accepted")),
            _ => (None, None),
        };
        Self {
            consumer: Some(&message.consumer),
            source: Some(&message.source),
            event_id: Some(&message.message_id),
            outcome,
            from_state,
            to_state,
            ..Self::default()
        }
    }

    const fn subject(&self) -> &'static str {
        match self.consumer {
            Some(_) => "message",
            None => "request",
        }
    }
}

/// Does not show the key.
impl fmt::Debug for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_takes_its_share_of_the_keys_and_always_the_same_ones() {
        let taken = |sample, outcome| {
            let log = RequestLog {
                sample,
                ..RequestLog::default()
            };
            let keys = (0..1_000).map(|n| n.to_string());
            let takes = |key: &String| {
                log.takes(&Line {
                    key: Some(key),
                    outcome,
                    ..Line::default()
                })
            };
            keys.filter(takes).collect::<Vec<_>>()
        };
        assert_eq!(taken(0.0, "created").len(), 0);
        assert_eq!(taken(1.0, "created").len(), 1_000);
        let some = taken(0.25, "created");
        assert!((200..300).contains(&some.len()), "{}", some.len());
        assert_eq!(taken(0.25, "replayed"), some);
    }

    #[test]
    fn no_sample_leaves_out_a_line_that_says_that_something_is_wrong() {
        let log = RequestLog {
            sample: 0.0,
            ..RequestLog::default()
        };
        for (outcome, status) in [
            ("mismatch", 409),
            ("in_progress", 409),
            ("released", 400),
            ("store_error", 503),
            ("failed_open", 201),
            ("refused", 413),
            // A failure that is stored.
            ("created", 500),
            ("replayed", 504),
        ] {
            let line = Line {
                key: Some("planted"),
                outcome,
                status: Some(status),
                ..Line::default()
            };
            assert!(log.takes(&line), "{outcome}");
            assert!(!format!("{line:?}").contains("planted"), "the key is shown");
        }
    }
}
