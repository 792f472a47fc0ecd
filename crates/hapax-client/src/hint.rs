//! What a far side asks for with `Retry-After`.
//!
//! Seconds, or a date. A date is measured against the answer's own `Date`: the two clocks need
//! not agree, and a client whose clock is an hour ahead must not come back at once.

use std::time::Duration;

use hapax::{Timestamp, retry};
use http::{
    HeaderMap,
    header::{DATE, HeaderName, RETRY_AFTER},
};

/// The wait that an answer asks for; `None` when it asks for none that can be read.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    retry::retry_after(text(RETRY_AFTER)?, text(DATE), now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Tue, 14 Nov 2023 22:13:20 GMT`.
    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn retry_after_is_seconds_or_a_date_by_the_answers_own_clock() {
        check("120", None, Some(120));
        check("Tue, 14 Nov 2023 22:14:20 GMT", None, Some(60));
        let its_now = Some("Tue, 14 Nov 2023 22:14:10 GMT");
        check("Tue, 14 Nov 2023 22:14:20 GMT", its_now, Some(10));
        check("soon", None, None);
    }

    #[track_caller]
    fn check(asked: &str, date: Option<&str>, expected: Option<u64>) {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, asked.parse().unwrap());
        if let Some(date) = date {
            headers.insert(DATE, date.parse().unwrap());
        }
        let wait = retry_after(&headers, NOW).map(|wait| wait.as_secs());
        assert_eq!(wait, expected, "{asked}");
    }
}
