//! The `Retry-After` header of a response: seconds or a date.
//!
//! A date is compared with the `Date` of the same response, because the clocks of client and server
//! may differ: a client whose clock is an hour ahead must not retry at once.

use std::time::Duration;

use crate::{clock::Timestamp, limits::RETRY_AFTER_MAX};

/// The wait that a response asks for, at most [`RETRY_AFTER_MAX`]; `None` if it has no valid
/// `Retry-After`. `header` looks up a header of the response by its name in lower case.
pub fn retry_after<'a>(
    header: impl Fn(&'static str) -> Option<&'a str>,
    now: Timestamp,
) -> Option<Duration> {
    let asked = header("retry-after")?.trim();
    let wait = if !asked.is_empty() && asked.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number with too many digits is a very long time, not zero.
        Duration::from_secs(asked.parse().unwrap_or(u64::MAX))
    } else {
        http_date(asked)?.since(header("date").and_then(http_date).unwrap_or(now))
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// The time in a header such as `Date`; `None` if it is not valid.
pub fn http_date(text: &str) -> Option<Timestamp> {
    let read = httpdate::parse_http_date(text.trim());
    read.ok().map(Timestamp::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Tue, 14 Nov 2023 22:13:20 GMT`.
    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn it_is_seconds_or_a_date_by_the_receivers_clock() {
        check("120", None, Some(120));
        check(" 0 ", None, Some(0));
        check("Tue, 14 Nov 2023 22:14:20 GMT", None, Some(60));
        let its_now = Some(" Tue, 14 Nov 2023 22:14:10 GMT ");
        check(" Tue, 14 Nov 2023 22:14:20 GMT ", its_now, Some(10));
        check("Tue, 14 Nov 2023 22:13:00 GMT", None, Some(0));
        check("Tue, 14 Nov 2023 22:14:20 GMT", Some("yesterday"), Some(60));
    }

    #[test]
    fn it_is_believed_for_a_day_at_most() {
        let day = Some(24 * 3600);
        check("86401", None, day);
        check("99999999999999999999999999", None, day);
        check("Fri, 31 Dec 9999 23:59:59 GMT", None, day);
    }

    #[test]
    fn one_that_says_nothing_asks_for_nothing() {
        assert_eq!(retry_after(|_| None, NOW), None);
        for text in ["", "soon", "-1", "1.5", "Tue, 99 Nov 2023 22:14:20 GMT"] {
            check(text, None, None);
        }
    }

    #[track_caller]
    fn check(asked: &str, date: Option<&str>, expected: Option<u64>) {
        let headers = [("retry-after", Some(asked)), ("date", date)];
        let header = |name: &str| headers.iter().find(|(known, _)| *known == name)?.1;
        let wait = retry_after(header, NOW).map(|wait| wait.as_secs());
        assert_eq!(wait, expected, "{asked}");
    }
}
