//! The version of the schema, for a handle that does not migrate.

use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::Connection;

use crate::{
    error::SchemaError,
    migrations::{check_own, failed},
};

/// The state of the schema that was checked last, for a handle that does not migrate.
///
/// SQLite counts the changes of the schema. If another process has migrated the database, or a
/// service its own tables, the count differs, and the schema is checked again.
#[derive(Debug, Default)]
pub(crate) struct SchemaVersion {
    /// One more than the count; zero before the first check.
    checked: AtomicI64,
}

impl SchemaVersion {
    /// Checks in a separate transaction.
    pub(crate) fn check_alone(&self, conn: &Connection) -> Result<(), SchemaError> {
        let tx = conn.unchecked_transaction().map_err(failed)?;
        self.check(&tx)
    }

    /// Checks that the schema is the one that this version needs, in a transaction that is open.
    pub(crate) fn check(&self, conn: &Connection) -> Result<(), SchemaError> {
        let count: i64 = conn
            .query_row("PRAGMA schema_version", [], |row| row.get(0))
            .map_err(failed)?;
        if self.checked.load(Ordering::Relaxed) == count + 1 {
            return Ok(());
        }
        check_own(conn)?;
        self.checked.store(count + 1, Ordering::Relaxed);
        Ok(())
    }
}
