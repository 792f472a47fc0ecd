//! Durations in their written form.

use std::{borrow::Cow, fmt, time::Duration};

use hapax::retry::parse_duration;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration such as `250ms`, `30s`, `5m`, `24h` or `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    /// Written in the largest unit that is exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let units = [
            (86_400_000, "d"),
            (3_600_000, "h"),
            (60_000, "m"),
            (1_000, "s"),
        ];
        let fits = |(unit, _): &(u128, &str)| millis != 0 && millis.is_multiple_of(*unit);
        match units.into_iter().find(fits) {
            Some((unit, name)) => write!(f, "{}{name}", millis / unit),
            None if millis == 0 => f.write_str("0s"),
            None => write!(f, "{millis}ms"),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let read = parse_duration(&text);
        read.map(Self)
            .map_err(|error| de::Error::custom(format!("is not valid: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_written_as_it_is_read() {
        for text in ["0s", "250ms", "90s", "5m", "24h", "7d", "1500ms"] {
            let read: Span = serde_json::from_value(text.into()).unwrap();
            let written = read.to_string();
            let again: Span = serde_json::from_value(written.clone().into()).unwrap();
            assert_eq!(read, again, "{written}");
        }
        assert_eq!(Span(Duration::from_hours(1)).to_string(), "1h");
        assert_eq!(Span(Duration::from_secs(90)).to_string(), "90s");
        assert!(serde_json::from_value::<Span>("5".into()).is_err());
    }
}
