//! View of an operation: one snapshot of the database.

use std::{fmt, ops::ControlFlow};

use hapax::{
    Timestamp, admin::AdminError, failpoint::Failpoints, keyring::Keyring, store::StoreError,
};
use rusqlite::{Connection, ErrorCode, Params, Row};

use crate::error::store_error;

/// A snapshot of the database, and when it was taken.
pub(super) struct View<'a> {
    pub(super) conn: &'a Connection,
    /// The time of the operation, by the store's clock.
    pub(super) now: Timestamp,
    /// Decrypts what is read.
    pub(super) keyring: &'a Keyring,
    pub(super) failpoints: &'a Failpoints,
}

impl View<'_> {
    /// Reads all rows.
    pub(super) fn list<R>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<R>,
    ) -> Result<Vec<R>, AdminError> {
        let mut all = Vec::new();
        self.visit(sql, params, |row| {
            all.push(read(row)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all)
    }

    /// Reads the first row.
    pub(super) fn first<R>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<R>,
    ) -> Result<Option<R>, AdminError> {
        let mut first = None;
        self.visit(sql, params, |row| {
            first = Some(read(row)?);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(first)
    }

    /// Runs a function of the store on the connection.
    pub(super) fn with<R>(
        &self,
        work: impl FnOnce(&Connection) -> Result<R, StoreError>,
    ) -> Result<R, AdminError> {
        self.failpoints.hit("sqlite.admin.statement");
        Ok(work(self.conn)?)
    }

    /// Visits the rows until `visit` breaks.
    pub(super) fn visit(
        &self,
        sql: &str,
        params: impl Params,
        mut visit: impl FnMut(&Row<'_>) -> rusqlite::Result<ControlFlow<()>>,
    ) -> Result<(), AdminError> {
        self.failpoints.hit("sqlite.admin.statement");
        let all = || {
            let mut statement = self.conn.prepare_cached(sql)?;
            let mut rows = statement.query(params)?;
            while let Some(row) = rows.next()? {
                if visit(row)?.is_break() {
                    break;
                }
            }
            Ok(())
        };
        all().map_err(admin_error)
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// Classifies an error that SQLite returned to an operation.
pub(super) fn admin_error(error: rusqlite::Error) -> AdminError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => AdminError::Busy,
        _ => AdminError::Store(store_error(error)),
    }
}
