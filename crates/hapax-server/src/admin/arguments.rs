//! Parsers of command-line arguments that several commands have.

use hapax::{Timestamp, retry::parse_duration};

use crate::environment;

/// Parses a time: RFC 3339, or a duration before now. The result is in RFC 3339, so that it means
/// the same time however late it is used.
pub(crate) fn time(text: &str) -> Result<String, String> {
    if text.parse::<Timestamp>().is_ok() {
        return Ok(text.to_owned());
    }
    let ago = parse_duration(text).map_err(|_| {
        "expected a duration before now such as 90m, 1h or 7d, or a time such as \
         2026-01-31T12:00:00Z"
    })?;
    let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
    let now = environment::clock().now().as_millis();
    Ok(Timestamp::from_millis(now.saturating_sub(ago)).to_string())
}

/// Parses the maximum number of items of a list.
pub(crate) fn limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a whole number, at least 1".to_owned()),
        Ok(limit) => Ok(limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_moment_or_how_long_ago_it_was() {
        let exact = "2026-01-31T12:00:00Z";
        assert_eq!(time(exact).as_deref(), Ok(exact));
        let now = environment::clock().now();
        for (text, minutes) in [("90m", 90), ("1h", 60), ("7d", 7 * 24 * 60)] {
            let at: Timestamp = time(text).unwrap().parse().unwrap();
            let ago = now.since(at).as_secs() / 60;
            assert!((minutes - 1..=minutes).contains(&ago), "{text}: {ago}");
        }
        for bad in ["", "yesterday", "1", "-1h", "1 week"] {
            assert!(time(bad).unwrap_err().starts_with("expected"), "{bad}");
        }
    }

    #[test]
    fn a_list_has_at_least_one_item() {
        assert_eq!(limit("1"), Ok(1));
        for bad in ["0", "-1", "x", ""] {
            assert!(limit(bad).is_err(), "{bad}");
        }
    }
}
