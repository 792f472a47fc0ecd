//! The clock of the machine, in the two forms that the server needs.
//!
//! Retention is measured by it, because it has to survive a restart, and `Date` is written from it.

use std::time::{Duration, SystemTime};

/// The time since the Unix epoch.
pub(crate) fn since_epoch() -> Duration {
    let since = now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// The current time in the format of the header `Date`.
pub(crate) fn http_date() -> String {
    httpdate::fmt_http_date(now())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server uses no crate of this project, and so no hapax::Clock"
)]
fn now() -> SystemTime {
    SystemTime::now()
}
