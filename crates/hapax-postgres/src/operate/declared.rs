//! What is declared about destinations, as it stands in their rows.

use hapax::Timestamp;
use tokio_postgres::Row;

use crate::value::Moment;

/// What is declared about a destination.
#[derive(Clone, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// What it is, as JSON without secrets; `None` for one that a configuration file declares.
    pub spec: Option<String>,
    /// Its secrets, sealed.
    pub sealed: Option<Vec<u8>>,
    /// The number of its last change, higher than that of every change before.
    pub version: i64,
    /// When it was declared.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub changed_at: Timestamp,
    /// By whom.
    pub changed_by: String,
    /// Since when nothing is to be offered.
    pub paused_at: Option<Timestamp>,
    /// Who said so.
    pub paused_by: Option<String>,
    /// When it was removed: no relay is to carry it.
    pub removed_at: Option<Timestamp>,
    /// When nothing was left of it, and its name was free again.
    pub purged_at: Option<Timestamp>,
}

impl std::fmt::Debug for Declared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Neither the spec nor what is sealed belongs into a log.
        f.debug_struct("Declared")
            .field("name", &self.name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// A part of a destination that a relay has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name: what its deliveries are kept under.
    pub name: String,
    /// Since when it is disabled, if it is.
    pub disabled_at: Option<Timestamp>,
    /// Why.
    pub disabled_reason: Option<String>,
}

pub(super) fn moment(row: &Row, column: usize) -> Option<Timestamp> {
    row.get::<_, Option<Moment>>(column).map(|it| it.0)
}

pub(super) fn declared(row: &Row) -> Declared {
    Declared {
        name: row.get(0),
        spec: row.get(1),
        sealed: row.get(2),
        version: row.get(3),
        created_at: row.get::<_, Moment>(4).0,
        changed_at: row.get::<_, Moment>(5).0,
        changed_by: row.get(6),
        paused_at: moment(row, 7),
        paused_by: row.get(8),
        removed_at: moment(row, 9),
        purged_at: moment(row, 10),
    }
}
