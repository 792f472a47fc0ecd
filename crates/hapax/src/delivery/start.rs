//! Start of a new destination: its first position in the outbox.
//!
//! A store decides this once for each destination, before it opens the first partition, and keeps
//! the position. See [`Starts`](crate::store::Starts).

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::clock::Timestamp;

/// The event with which a new destination starts. As text it is `beginning`, `now` or a time in
/// RFC 3339.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The oldest event that is still in the outbox.
    #[default]
    Beginning,
    /// The first event that is committed after the start was recorded.
    Now,
    /// The first event in the outbox that was created at this time or later, by the clock of its
    /// producer. If there is none yet, the same as [`Now`](Self::Now).
    At(Timestamp),
}

/// A text is not a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be \"now\", \"beginning\" or a time such as \"2026-01-31T12:00:00Z\"")]
pub struct StartError;

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beginning => f.write_str("beginning"),
            Self::Now => f.write_str("now"),
            Self::At(time) => fmt::Display::fmt(time, f),
        }
    }
}

impl FromStr for Start {
    type Err = StartError;

    fn from_str(text: &str) -> Result<Self, StartError> {
        match text {
            "beginning" => Ok(Self::Beginning),
            "now" => Ok(Self::Now),
            time => time.parse().map(Self::At).map_err(|_| StartError),
        }
    }
}

impl Serialize for Start {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_written_as_it_is_read() {
        for text in ["beginning", "now", "2026-01-31T12:00:00.000Z"] {
            assert_eq!(text.parse::<Start>().unwrap().to_string(), text);
        }
        let time = "2026-01-31T13:00:00+01:00".parse::<Start>().unwrap();
        assert_eq!(time.to_string(), "2026-01-31T12:00:00.000Z");
    }

    #[test]
    fn a_text_that_is_no_start_is_refused() {
        for text in ["", "Now", "yesterday", "2026-01-31", "2026-01-31T12:00:00"] {
            assert_eq!(text.parse::<Start>(), Err(StartError), "{text}");
        }
    }
}
