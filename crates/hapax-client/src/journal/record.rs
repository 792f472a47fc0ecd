//! The lines of a journal.
//!
//! A line is a JSON object: `open` with the operation that is about to be sent, or `done` with a
//! key. A second `open` with the same key says that another run has continued under it. A last line
//! without a line break, or with zero bytes in it, was not written completely because the process
//! died or the power failed. It is ignored: if it was an `open`, nothing was sent for it, and if it
//! was a `done`, the operation only counts as unfinished. Any other line that is not valid is an
//! error.

use std::time::Duration;

use hapax::{Timestamp, key::hex, limits::JOURNAL_CLOCK};
use serde::{Deserialize, Serialize};

use super::Intent;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum Record {
    Open(Open),
    Done { key: String, at_ms: i64 },
}

/// An operation that was about to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Open {
    pub(super) key: String,
    pub(super) at_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    method: String,
    url: String,
    body: String,
}

impl Open {
    pub(super) fn new(intent: &Intent, key: &str, now: Timestamp) -> Self {
        Self {
            key: key.to_owned(),
            at_ms: now.as_millis(),
            name: intent.name.clone(),
            method: intent.method.clone(),
            url: intent.url.clone(),
            body: hex(intent.body.as_bytes()),
        }
    }

    fn is_for(&self, intent: &Intent) -> bool {
        self.name == intent.name
            && self.method == intent.method
            && self.url == intent.url
            && self.body == hex(intent.body.as_bytes())
    }
}

impl Record {
    /// The line with its line break.
    pub(super) fn line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("a record is strings and numbers");
        line.push('\n');
        line
    }
}

/// The line is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {0} of the journal is not a valid record")]
pub(super) struct NoRecord(usize);

/// The unfinished operations, and the length of the complete lines in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unfinished {
    pub(super) open: Vec<Open>,
    pub(super) whole: usize,
    /// The latest timestamp of any line, which the current time cannot precede.
    newest_ms: i64,
}

impl Unfinished {
    /// Parses a journal.
    pub(super) fn read(text: &[u8]) -> Result<Self, NoRecord> {
        let whole = whole(text);
        let (mut open, mut newest_ms): (Vec<Open>, _) = (Vec::new(), i64::MIN);
        for (line, number) in text[..whole].split(|byte| *byte == b'\n').zip(1..) {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let at_ms = match serde_json::from_slice(line).map_err(|_| NoRecord(number))? {
                Record::Open(it) => {
                    let at_ms = it.at_ms;
                    open.push(it);
                    at_ms
                }
                Record::Done { key, at_ms } => {
                    open.retain(|it| it.key != key);
                    at_ms
                }
            };
            newest_ms = newest_ms.max(at_ms);
        }
        Ok(Self {
            open,
            whole,
            newest_ms,
        })
    }

    /// The first line of an unfinished operation.
    pub(super) fn first_of(&self, intent: &Intent) -> Option<&Open> {
        self.open.iter().find(|open| open.is_for(intent))
    }

    /// Whether another run has continued under a key.
    pub(super) fn is_shared(&self, key: &str) -> bool {
        self.open.iter().filter(|open| open.key == key).count() > 1
    }

    /// The age of a line; `None` if its timestamp is in the future, so that the age is not known.
    ///
    /// If the clock was set back, lines seem younger than they are. The latest line gives a lower
    /// bound of the current time.
    pub(super) fn age(&self, open: &Open, now: Timestamp) -> Option<Duration> {
        let now_ms = now.as_millis();
        let ahead_ms = i64::try_from(JOURNAL_CLOCK.as_millis()).unwrap_or(i64::MAX);
        if open.at_ms > now_ms.saturating_add(ahead_ms) {
            return None;
        }
        let latest = Timestamp::from_millis(now_ms.max(self.newest_ms));
        Some(latest.since(Timestamp::from_millis(open.at_ms)))
    }
}

/// Length of the text without an incomplete last line. If a line was not synced, the disk may
/// contain its end with zero bytes before it.
fn whole(text: &[u8]) -> usize {
    let last_break = text.iter().rposition(|byte| *byte == b'\n');
    let Some(last_break) = last_break else {
        return 0;
    };
    let before = text[..last_break].iter().rposition(|byte| *byte == b'\n');
    let start = before.map_or(0, |at| at + 1);
    let is_torn = text[start..last_break].contains(&0);
    if is_torn { start } else { last_break + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(7);

    fn open(body: &str, key: &str) -> String {
        let intent = Intent::new("POST", "http://a/b", body.as_bytes());
        Record::Open(Open::new(&intent, key, NOW)).line()
    }

    fn done(key: &str) -> String {
        let (key, at_ms) = (key.to_owned(), 8);
        Record::Done { key, at_ms }.line()
    }

    #[track_caller]
    fn check(text: &str, body: &str, expected: Option<&str>) {
        let read = Unfinished::read(text.as_bytes()).unwrap();
        let intent = Intent::new("POST", "http://a/b", body.as_bytes());
        let key = read.first_of(&intent).map(|open| open.key.as_str());
        assert_eq!(key, expected, "{text}");
    }

    #[test]
    fn an_intent_is_unfinished_until_its_key_is_done() {
        check("", "x", None);
        check(&open("x", "k1"), "x", Some("k1"));
        check(&open("x", "k1"), "y", None);
        check(&(open("x", "k1") + &done("k1")), "x", None);
        check(&(open("x", "k1") + &done("k2")), "x", Some("k1"));
        let again = open("x", "k1") + &done("k1") + &open("x", "k2");
        check(&again, "x", Some("k2"));
    }

    #[test]
    fn a_name_an_address_or_a_method_tells_intents_apart() {
        let text = open("x", "k1");
        let read = Unfinished::read(text.as_bytes()).unwrap();
        let other = |method, url| Intent::new(method, url, b"x");
        assert_eq!(read.first_of(&other("PATCH", "http://a/b")), None);
        assert_eq!(read.first_of(&other("POST", "http://a/c")), None);
        let mut named = other("POST", "http://a/b");
        named.name = Some("order 7".to_owned());
        assert_eq!(read.first_of(&named), None);
    }

    #[test]
    fn the_age_of_a_line_is_never_less_than_the_journal_proves() {
        let line = |body: &str, key: &str, at_ms| {
            let intent = Intent::new("POST", "http://a/b", body.as_bytes());
            Record::Open(Open::new(&intent, key, Timestamp::from_millis(at_ms))).line()
        };
        let text = line("x", "k1", 1_000) + &line("y", "k2", 500_000);
        let read = Unfinished::read(text.as_bytes()).unwrap();
        let age = |line: usize, now| {
            let age = read.age(&read.open[line], Timestamp::from_millis(now));
            age.map(|age| age.as_millis())
        };
        assert_eq!(age(0, 601_000), Some(600_000));
        // The clock was set back: the second line was written at a later time than this.
        assert_eq!(age(0, 2_000), Some(499_000));
        // A clock that is slightly ahead was corrected. A clock that is further ahead cannot be
        // used.
        assert_eq!(age(1, 470_000), Some(0));
        assert_eq!(age(1, 2_000), None);
    }

    #[test]
    fn a_torn_last_line_is_left_out_wherever_it_is_torn() {
        let (first, last) = (open("x", "k1"), open("y", "k2"));
        for torn in 0..last.len() {
            let text = first.clone() + &last[..torn];
            let read = Unfinished::read(text.as_bytes()).unwrap();
            assert_eq!((read.open.len(), read.whole), (1, first.len()), "{torn}");
        }
        for torn in 0..done("k1").len() {
            check(&(first.clone() + &done("k1")[..torn]), "x", Some("k1"));
        }
    }

    #[test]
    fn a_last_line_of_which_the_disk_has_only_the_end_is_left_out() {
        let (first, last) = (open("x", "k1"), open("y", "k2"));
        let half = last.len() / 2;
        let text = first.clone() + &"\0".repeat(half) + &last[half..];
        let read = Unfinished::read(text.as_bytes()).unwrap();
        assert_eq!((read.open.len(), read.whole), (1, first.len()));
    }

    #[test]
    fn a_last_line_of_a_later_release_is_an_error() {
        let text = open("x", "k1") + "{\"state\":\"later\"}\n";
        assert_eq!(Unfinished::read(text.as_bytes()), Err(NoRecord(2)));
    }

    #[test]
    fn a_line_in_the_middle_that_is_none_is_an_error_and_not_passed_over() {
        let text = open("x", "k1") + "{\"state\":\"op\n" + &done("k1");
        assert_eq!(Unfinished::read(text.as_bytes()), Err(NoRecord(2)));
    }
}
