//! Parser of `Retry-After`, which contains seconds or a date.
//!
//! A date is compared with the `Date` header of the same response, not with the client's clock: a
//! client whose clock is an hour ahead must not retry immediately.

use std::time::Duration;

use hapax::{Timestamp, retry};
use http::{
    HeaderMap,
    header::{DATE, HeaderName, RETRY_AFTER},
};

/// The wait that a response asks for; `None` if it has no valid `Retry-After`.
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
