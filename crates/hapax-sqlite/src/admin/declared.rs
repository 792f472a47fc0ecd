//! Declared destinations, as they are read from their rows.

use hapax::{Timestamp, admin::Declared};
use rusqlite::Row;

/// A time of a row, in milliseconds of the Unix epoch.
pub(super) fn moment(row: &Row<'_>, column: &str) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_millis)
}

/// A time of a row that may be absent.
pub(super) fn optional_moment(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Timestamp>> {
    let millis: Option<i64> = row.get(column)?;
    Ok(millis.map(Timestamp::from_millis))
}

pub(super) fn declared(row: &Row<'_>) -> rusqlite::Result<Declared> {
    Ok(Declared {
        name: row.get("name")?,
        spec: row.get("spec")?,
        sealed: row.get("sealed")?,
        version: row.get("version")?,
        created_at: moment(row, "created_at")?,
        changed_at: moment(row, "changed_at")?,
        changed_by: row.get("changed_by")?,
        paused_at: optional_moment(row, "paused_at")?,
        paused_by: row.get("paused_by")?,
        removed_at: optional_moment(row, "removed_at")?,
        purged_at: optional_moment(row, "purged_at")?,
    })
}
