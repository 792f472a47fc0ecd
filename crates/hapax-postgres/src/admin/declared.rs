//! Declared destinations, as they are read from their rows.

use hapax::{Timestamp, admin::Declared};
use tokio_postgres::Row;

use crate::value::Moment;

pub(super) fn moment(row: &Row, column: &str) -> Option<Timestamp> {
    row.get::<_, Option<Moment>>(column).map(|it| it.0)
}

pub(super) fn declared(row: &Row) -> Declared {
    Declared {
        name: row.get("name"),
        spec: row.get("spec"),
        sealed: row.get("sealed"),
        version: row.get("version"),
        created_at: row.get::<_, Moment>("created_at").0,
        changed_at: row.get::<_, Moment>("changed_at").0,
        changed_by: row.get("changed_by"),
        paused_at: moment(row, "paused_at"),
        paused_by: row.get("paused_by"),
        removed_at: moment(row, "removed_at"),
        purged_at: moment(row, "purged_at"),
    }
}
