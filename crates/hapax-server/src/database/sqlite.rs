//! An SQLite file.
//!
//! Operators open it next to the process that has it open as a store. They never create it: a wrong
//! path would otherwise leave an empty file behind.

use std::path::Path;

use hapax_sqlite::{
    MIGRATIONS, OpenError, SchemaError, Settings, Sqlite, SqliteAdmin,
    rusqlite::{Connection, OpenFlags, OptionalExtension as _},
};

use super::{Access, DatabaseError};
use crate::{config::Schema, environment};

/// Opens the file for operators.
pub(crate) fn open_admin(access: &Access<'_>, path: &Path) -> Result<SqliteAdmin, DatabaseError> {
    SqliteAdmin::open(settings(access, path)).map_err(|error| refused(&error))
}

/// Opens the file as a store, which belongs to this process until the store is closed. The tables
/// are created or upgraded if the configuration says so.
pub(crate) fn open_store(access: &Access<'_>, path: &Path) -> Result<Sqlite, DatabaseError> {
    if access.config.schema == Schema::Check {
        check_version(path)?;
    }
    Sqlite::open(settings(access, path)).map_err(|error| refused(&error))
}

/// The settings of the store.
pub(crate) fn settings(access: &Access<'_>, path: &Path) -> Settings {
    let (clock, random) = (environment::clock(), environment::random());
    let mut settings = Settings::new(path, clock, random);
    settings.failpoints = access.failpoints.clone();
    settings.keyring = access.keyring.clone();
    settings.operational_events = access.operational_events.clone();
    settings
}

/// The last version that this program knows.
pub(crate) fn known_version() -> u32 {
    MIGRATIONS.last().map_or(0, |(version, ..)| *version)
}

/// Opens a connection that only reads.
pub(crate) fn look(path: &Path) -> Result<Connection, DatabaseError> {
    let shown = path.display();
    if !path.exists() {
        return Err(missing(path));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
        .map_err(|error| DatabaseError(format!("database {shown} cannot be opened: {error}")))
}

/// The version of the tables of Hapax; 0 if there are none.
pub(crate) fn version(connection: &Connection) -> hapax_sqlite::rusqlite::Result<u32> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'hapax_migration'";
    let record: Option<i64> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    if record.is_none() {
        return Ok(0);
    }
    let sql = "SELECT max(version) FROM hapax_migration WHERE namespace = 'hapax'";
    let version: Option<u32> = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(version.unwrap_or(0))
}

/// Checks that the file exists and has the tables of this version. A newer version is refused by
/// the store.
fn check_version(path: &Path) -> Result<(), DatabaseError> {
    let shown = path.display();
    let found = version(&look(path)?)
        .map_err(|error| DatabaseError(format!("database {shown} cannot be read: {error}")))?;
    match found {
        0 => Err(empty(path)),
        found if found < known_version() => Err(older(path, found)),
        _ => Ok(()),
    }
}

/// Why a file was not opened, and which command helps.
pub(crate) fn refused(error: &OpenError) -> DatabaseError {
    match error {
        OpenError::InUse { path } => DatabaseError(format!(
            "database {} is in use: a service that has opened it runs its relay and its migrations \
             itself, and operators need only `hapax console` and the other commands",
            path.display()
        )),
        OpenError::Missing { path } => missing(path),
        OpenError::Schema {
            path,
            source: SchemaError::Absent,
        } => empty(path),
        OpenError::Schema {
            path,
            source: SchemaError::Older { found, .. },
        } => older(path, *found),
        _ => DatabaseError(environment::error_chain(error)),
    }
}

fn missing(path: &Path) -> DatabaseError {
    DatabaseError(format!(
        "there is no database {}: check the path, or create it with `hapax migrate`",
        path.display()
    ))
}

fn empty(path: &Path) -> DatabaseError {
    DatabaseError(format!(
        "database {} has no tables of Hapax: run `hapax migrate`, or start the service that uses \
         it",
        path.display()
    ))
}

fn older(path: &Path, found: u32) -> DatabaseError {
    DatabaseError(format!(
        "database {} is at version {found}, version {} is needed: run `hapax migrate`, or start \
         the service with this version of Hapax",
        path.display(),
        known_version()
    ))
}
