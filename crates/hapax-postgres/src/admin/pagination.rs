//! Cursors of rows: lists are ordered by time, with microsecond precision.

use hapax::{Timestamp, admin::Cursor};
use tokio_postgres::Row;

/// The cursor of a row.
pub(super) fn cursor(row: &Row) -> Cursor {
    Cursor {
        micros: row.get("micros"),
        tie: row.get("tie"),
    }
}

/// The start of the next page: after the last listed row, or where the search ended, if it read the
/// maximum number of rows and did not pass the time `since`. Every row contains the number of rows
/// that were read (`looked`), and where the search ended (`end_micros`, `end_tie`).
pub(super) fn next(
    last: Option<Cursor>,
    found: &[Row],
    look: i64,
    since: Option<Timestamp>,
) -> Option<String> {
    let full = found
        .first()
        .filter(|row| row.get::<_, i64>("looked") >= look);
    let ended = full.map(|row| Cursor {
        micros: row.get("end_micros"),
        tie: row.get("end_tie"),
    });
    Cursor::next(last, ended, since)
}
