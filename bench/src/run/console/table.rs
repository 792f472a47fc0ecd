//! Table of the pages for the report.

use std::fmt::Write as _;

use super::{BOUND, Timed};

/// The table, with a row for each page.
pub(super) fn of(timed: &[Timed]) -> String {
    let mut text = String::from(
        "| page | filter or variant | bytes | requests | p50 | p99 | max | |\n\
         |---|---|---:|---:|---:|---:|---:|---|\n",
    );
    for one in timed {
        let _ = writeln!(text, "{}", row(one));
    }
    text
}

/// One row of the table.
pub(super) fn row(one: &Timed) -> String {
    let word = if one.p99() < BOUND {
        "PASS"
    } else {
        "**short**"
    };
    let asked = &one.page.asked;
    let asked = match asked.as_str() {
        "" => String::new(),
        asked => format!("`{asked}`"),
    };
    format!(
        "| {} | {asked} | {} | {} | {:.1} ms | {:.1} ms | {:.1} ms | {word} |",
        one.page.name,
        one.bytes,
        one.times.count(),
        one.millis(500),
        one.p99(),
        one.millis(1_000),
    )
}
