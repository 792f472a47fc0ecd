//! Fuzz target for `Retry-After` and `Date`: any two texts give a wait within its bound, or none.
//!
//! The first line of the input is `Retry-After`, the second is `Date`. Seconds are read as an
//! unbounded number and then limited. A date in the preferred format of HTTP is compared with
//! another calendar.
#![no_main]

use std::time::Duration;

use hapax::{Timestamp, limits::RETRY_AFTER_MAX, retry::retry_after};
use jiff::fmt::strtime;
use libfuzzer_sys::fuzz_target;

/// This is `Tue, 14 Nov 2023 22:13:20 GMT`.
const NOW: i64 = 1_700_000_000;

fuzz_target!(|text: &str| {
    let (asked, date) = text.split_once('\n').unwrap_or((text, ""));
    let now = Timestamp::from_millis(NOW * 1000);
    let read = |asked: &str| {
        let header = |name| Some(if name == "date" { date } else { asked });
        retry_after(header, now)
    };
    let wait = read(asked);
    assert!(wait.is_none_or(|wait| wait <= RETRY_AFTER_MAX));
    assert_eq!(read(&format!(" {asked}\t")), wait);

    let digits = asked.trim();
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let significant = digits.trim_start_matches('0');
        let seconds = if significant.len() > 9 {
            u64::MAX
        } else {
            significant.parse().unwrap_or(0)
        };
        assert_eq!(
            wait,
            Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
        );
    }
    if let Some(moment) = calendar(asked) {
        let since = calendar(date).unwrap_or(NOW);
        // `calendar` does not parse the two obsolete date formats of HTTP.
        if calendar(date).is_some() || date.trim().is_empty() {
            let seconds = u64::try_from(moment - since).unwrap_or(0);
            assert_eq!(
                wait,
                Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
            );
        }
    }
});

/// Parses a date such as `Tue, 14 Nov 2023 22:13:20 GMT` into seconds since the epoch.
fn calendar(text: &str) -> Option<i64> {
    let text = text.trim();
    let moment = strtime::parse("%a, %d %b %Y %H:%M:%S GMT", text)
        .ok()?
        .to_datetime()
        .ok()?;
    let is_exact = moment.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string() == text;
    let seconds = moment.in_tz("UTC").ok()?.timestamp().as_second();
    (is_exact && (0..=253_402_300_799).contains(&seconds)).then_some(seconds)
}
