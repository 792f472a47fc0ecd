//! Errors, classified by what to do: retry, or change something first.
//!
//! [`OpenError`] and [`SchemaError`] occur when the store is opened, and say what to do. Later
//! failures become a [`StoreError`]: `Unavailable` if the same request may succeed later (disk
//! full, read-only, I/O, corruption, busy), `Statement` if it will fail again.

use std::path::PathBuf;

use hapax::{
    keyring::KeyringError,
    sink::BoxError,
    store::{DatabaseError, DatabaseErrorKind, StoreError},
};
use rusqlite::ErrorCode;

/// The reason why a database was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another store has the file open: stop that one, or choose another file.
    #[error("database {path:?} is in use: stop the other process or choose another file")]
    InUse {
        /// The path of the database.
        path: PathBuf,
    },
    /// There is no file at the path. Only a store creates it.
    #[error(
        "there is no database {path:?}: check the path, or start the service first, which creates it"
    )]
    Missing {
        /// The path of the database.
        path: PathBuf,
    },
    /// Another program holds the lock of the file: try again later.
    #[error("database {path:?} is locked by another program: try again")]
    Busy {
        /// The path of the database.
        path: PathBuf,
        /// The error that SQLite returned.
        source: BoxError,
    },
    /// The file cannot be read or written now. For a full disk, SQLite reports only a number.
    #[error(
        "database {path:?} cannot be opened: check that its folder is writable and that its disk has room"
    )]
    Unavailable {
        /// The path of the database.
        path: PathBuf,
        /// The cause.
        source: BoxError,
    },
    /// The file is damaged or not a database: restore it from a backup or choose another file.
    #[error(
        "database {path:?} is damaged or not an SQLite database: restore a backup of it or choose another file"
    )]
    Corrupt {
        /// The path of the database.
        path: PathBuf,
        /// The error that SQLite returned.
        source: BoxError,
    },
    /// The schema is not one that this version knows.
    #[error("database {path:?} has another schema")]
    Schema {
        /// The path of the database.
        path: PathBuf,
        /// The difference.
        source: SchemaError,
    },
}

/// The reason why a schema was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The database contains no store.
    #[error("it contains no store: check the path, or start the service that uses it")]
    Absent,
    /// The schema is from an older version of the program.
    #[error(
        "schema {namespace:?} is at version {found}, this program needs {known}: start the service with this version, which migrates it"
    )]
    Older {
        /// The namespace of the schema.
        namespace: String,
        /// The version that was found.
        found: u32,
        /// The version that this program needs.
        known: u32,
    },
    /// The schema is from a newer version of the program.
    #[error(
        "schema {namespace:?} is at version {found}, this program knows {known}: run a newer version of it"
    )]
    Newer {
        /// The namespace of the schema.
        namespace: String,
        /// The version that was found.
        found: u32,
        /// The highest version that this program knows.
        known: u32,
    },
    /// An applied migration differs from the one with its number in this program.
    #[error(
        "migration {version} ({name}) of schema {namespace:?} is not the one that was applied: put the applied file back and add a new one"
    )]
    Changed {
        /// The namespace of the schema.
        namespace: String,
        /// The number of the migration.
        version: u32,
        /// Its name in this program.
        name: String,
    },
    /// A table, index or trigger is missing or was changed by hand.
    #[error("{object} was changed by hand or dropped: restore a backup of the database")]
    Damaged {
        /// The object that differs from what its migration created.
        object: String,
    },
    /// A table with this name exists, but it was not created by a recorded migration.
    #[error("{object} was not made by this program: choose another database file")]
    Foreign {
        /// The object that exists already.
        object: String,
    },
    /// The given migrations are not numbered 1, 2, 3, or their namespace is not allowed.
    #[error("migrations of schema {namespace:?} are not usable: {problem}")]
    Malformed {
        /// The namespace of the schema.
        namespace: String,
        /// The problem.
        problem: &'static str,
    },
    /// A migration failed and was rolled back.
    #[error("migration {version} ({name}) of schema {namespace:?} failed and was rolled back")]
    Failed {
        /// The namespace of the schema.
        namespace: String,
        /// The number of the migration.
        version: u32,
        /// Its name.
        name: String,
        /// The error that SQLite returned.
        source: StoreError,
    },
    /// The database could not be read or written.
    #[error("schema could not be read or written")]
    Store(#[source] StoreError),
}

impl OpenError {
    /// Classifies an error of SQLite that occurred while opening `path`.
    pub(crate) fn of(path: PathBuf, error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Corrupt {
                path,
                source: error.into(),
            },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy {
                path,
                source: error.into(),
            },
            _ => Self::Unavailable {
                path,
                source: error.into(),
            },
        }
    }

    /// Classifies an error of the schema of `path`.
    pub(crate) fn schema(path: PathBuf, error: SchemaError) -> Self {
        match error {
            SchemaError::Store(StoreError::Unavailable { source }) => {
                match source.downcast::<rusqlite::Error>() {
                    Ok(error) => Self::of(path, *error),
                    Err(source) => Self::Unavailable { path, source },
                }
            }
            source => Self::Schema { path, source },
        }
    }
}

/// Classifies an error that SQLite returned for a statement on the store's own tables. If the
/// statement cannot be prepared, for instance because its table is missing, the store cannot be used.
pub(crate) fn own_error(error: rusqlite::Error) -> StoreError {
    match error {
        error @ rusqlite::Error::SqlInputError { .. } => StoreError::unavailable(error),
        error => store_error(error).of_own_statement(),
    }
}

/// Classifies an error that SQLite returned for a statement.
pub(crate) fn store_error(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => StoreError::TimedOut,
        Some(code) if passes(code) => StoreError::unavailable(error),
        _ => refused(error),
    }
}

/// The error of a statement that will fail again. If SQLite itself refused the statement, the error
/// has its kind.
fn refused(error: rusqlite::Error) -> StoreError {
    let rusqlite::Error::SqliteFailure(failure, message) = &error else {
        return StoreError::statement(error);
    };
    let kind = kind(*failure);
    // "UNIQUE constraint failed: shop_order.number"
    let constraint = message
        .as_deref()
        .and_then(|it| it.split_once("constraint failed: "));
    let constraint = constraint.map(|(_, named)| named.to_owned());
    let code = failure.extended_code.to_string();
    StoreError::statement(DatabaseError::new(kind, constraint, code, error))
}

fn kind(outcome: rusqlite::ffi::Error) -> DatabaseErrorKind {
    use rusqlite::ffi;

    match (outcome.extended_code, outcome.code) {
        (
            ffi::SQLITE_CONSTRAINT_UNIQUE
            | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
            | ffi::SQLITE_CONSTRAINT_ROWID,
            _,
        ) => DatabaseErrorKind::UniqueViolation,
        (ffi::SQLITE_CONSTRAINT_FOREIGNKEY, _) => DatabaseErrorKind::ForeignKeyViolation,
        (ffi::SQLITE_CONSTRAINT_NOTNULL, _) => DatabaseErrorKind::NotNullViolation,
        (ffi::SQLITE_CONSTRAINT_CHECK, _) => DatabaseErrorKind::CheckViolation,
        // A value of another type in a STRICT table.
        (ffi::SQLITE_CONSTRAINT_DATATYPE, _) | (_, ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
            DatabaseErrorKind::InvalidInput
        }
        (_, ErrorCode::ConstraintViolation) => DatabaseErrorKind::OtherConstraint,
        _ => DatabaseErrorKind::Other,
    }
}

/// The error of a store that is unavailable for a reason that does not come from SQLite.
pub(crate) fn unavailable(reason: &'static str) -> StoreError {
    StoreError::unavailable(reason)
}

/// The error for a stored row that cannot be read.
pub(crate) fn corrupt(what: impl Into<String>) -> StoreError {
    StoreError::Corrupt { what: what.into() }
}

/// The error for a stored value that cannot be decrypted.
pub(crate) fn encrypted(what: &str) -> impl Fn(KeyringError) -> StoreError {
    move |error| corrupt(format!("{what}: {error}"))
}

/// The error for a value that cannot be encrypted now.
pub(crate) fn not_encrypted(error: KeyringError) -> StoreError {
    StoreError::unavailable(error)
}

/// Whether the same statement may succeed later, after the problem with the disk or file is fixed.
fn passes(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::ReadOnly
            | ErrorCode::DatabaseCorrupt
            | ErrorCode::NotADatabase
            | ErrorCode::CannotOpen
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::PermissionDenied
            | ErrorCode::OutOfMemory
            | ErrorCode::FileLockingProtocolFailed
    )
}
