//! Declared destinations, as they are read from their rows.
//!
//! `Debug` prints neither the specification nor the secrets.

use hapax::Timestamp;
use tokio_postgres::Row;

use crate::value::Moment;

/// A declared destination.
#[derive(Clone, PartialEq, Eq)]
pub struct Declared {
    /// The name.
    pub name: String,
    /// The specification, as JSON without secrets; `None` if a configuration file declares it.
    pub spec: Option<String>,
    /// The encrypted secrets.
    pub sealed: Option<Vec<u8>>,
    /// The number of the last change, which is higher than the numbers of all earlier changes.
    pub version: i64,
    /// When it was declared.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub changed_at: Timestamp,
    /// The operator who last changed it.
    pub changed_by: String,
    /// When it was paused, if it is paused.
    pub paused_at: Option<Timestamp>,
    /// The operator who paused it.
    pub paused_by: Option<String>,
    /// When it was removed: relays stop delivering to it.
    pub removed_at: Option<Timestamp>,
    /// When its rows were deleted and its name became free again.
    pub purged_at: Option<Timestamp>,
}

impl std::fmt::Debug for Declared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Neither the specification nor the secrets belong into a log.
        f.debug_struct("Declared")
            .field("name", &self.name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// A partition of a destination that a relay has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The name, under which its deliveries are stored.
    pub name: String,
    /// When it was disabled, if it is disabled.
    pub disabled_at: Option<Timestamp>,
    /// Why it is disabled.
    pub disabled_reason: Option<String>,
}

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
