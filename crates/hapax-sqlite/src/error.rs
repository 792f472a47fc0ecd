//! What can go wrong, as decisions: try again, or change something first.
//!
//! [`OpenError`] and [`SchemaError`] are met at start and say what to do. Later failures become
//! [`StoreError`]: `Unavailable` where the same request may succeed later (disk full, read-only,
//! I/O, corruption, busy), `Statement` where it will not.

use std::path::PathBuf;

use hapax::{
    keyring::KeyringError,
    sink::BoxError,
    store::{DatabaseError, DatabaseErrorKind, StoreError},
};
use rusqlite::ErrorCode;

/// Why a database was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another store has it open: stop that one, or choose another file.
    #[error("database {path:?} is in use: stop the other process or choose another file")]
    InUse {
        /// Which database.
        path: PathBuf,
    },
    /// The file cannot be reached or written now; what SQLite says of a full disk is a bare number.
    #[error(
        "database {path:?} cannot be opened: see whether its folder may be written to and its disk has room"
    )]
    Unavailable {
        /// Which database.
        path: PathBuf,
        /// What went wrong.
        source: BoxError,
    },
    /// The file is damaged or no database: restore it from a backup or choose another file.
    #[error(
        "database {path:?} is damaged or no SQLite database: restore a backup of it or choose another file"
    )]
    Corrupt {
        /// Which database.
        path: PathBuf,
        /// What SQLite said.
        source: BoxError,
    },
    /// The tables are not those that this version knows.
    #[error("database {path:?} has another schema")]
    Schema {
        /// Which database.
        path: PathBuf,
        /// What is different.
        source: SchemaError,
    },
}

/// Why a schema was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A later version of the program has been here.
    #[error(
        "schema {namespace:?} is at version {found}, this program knows {known}: run a newer version of it"
    )]
    Newer {
        /// Whose tables.
        namespace: String,
        /// The version that was found.
        found: u32,
        /// The highest version that this program knows.
        known: u32,
    },
    /// A migration was applied that is not the one this program has under its number.
    #[error(
        "migration {version} ({name}) of schema {namespace:?} is not the one that was applied: put the applied file back and add a new one"
    )]
    Changed {
        /// Whose tables.
        namespace: String,
        /// Which migration.
        version: u32,
        /// Its name here.
        name: String,
    },
    /// A table, index or trigger is missing or was changed by hand.
    #[error("{object} was changed by hand or dropped: restore a backup of the database")]
    Damaged {
        /// What is not as its migration made it.
        object: String,
    },
    /// Tables of these names are there, but no record of who made them.
    #[error("{object} was not made by this program: choose another database file")]
    Foreign {
        /// What stands in the way.
        object: String,
    },
    /// The migrations handed over are not numbered 1, 2, 3, or their namespace is taken.
    #[error("migrations of schema {namespace:?} are not usable: {problem}")]
    Malformed {
        /// Whose tables.
        namespace: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// A migration failed and was rolled back.
    #[error("migration {version} ({name}) of schema {namespace:?} failed and was rolled back")]
    Failed {
        /// Whose tables.
        namespace: String,
        /// Which migration.
        version: u32,
        /// Its name.
        name: String,
        /// What SQLite said.
        source: StoreError,
    },
    /// The database could not be read or written.
    #[error("schema could not be read or written")]
    Store(#[source] StoreError),
}

impl OpenError {
    /// Sorts what SQLite said while opening `path`.
    pub(crate) fn of(path: PathBuf, error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Corrupt {
                path,
                source: error.into(),
            },
            _ => Self::Unavailable {
                path,
                source: error.into(),
            },
        }
    }

    /// Sorts what was wrong with the schema of `path`.
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

/// Sorts what SQLite said about a statement.
pub(crate) fn store_error(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => StoreError::TimedOut,
        Some(code) if passes(code) => StoreError::Unavailable {
            source: error.into(),
        },
        _ => refused(error),
    }
}

/// A statement that fails again; what SQLite itself refused says what kind of refusal it was.
fn refused(error: rusqlite::Error) -> StoreError {
    let rusqlite::Error::SqliteFailure(told, message) = &error else {
        return StoreError::Statement {
            source: error.into(),
        };
    };
    let kind = kind(*told);
    // "UNIQUE constraint failed: shop_order.number"
    let constraint = message
        .as_deref()
        .and_then(|it| it.split_once("constraint failed: "));
    let constraint = constraint.map(|(_, named)| named.to_owned());
    let code = told.extended_code.to_string();
    StoreError::Statement {
        source: DatabaseError::new(kind, constraint, code, error).into(),
    }
}

fn kind(told: rusqlite::ffi::Error) -> DatabaseErrorKind {
    use rusqlite::ffi;

    match (told.extended_code, told.code) {
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

/// A store that cannot do anything now, for a reason of our own.
pub(crate) fn unavailable(reason: &'static str) -> StoreError {
    StoreError::Unavailable {
        source: reason.into(),
    }
}

/// A stored row that cannot be read.
pub(crate) fn corrupt(what: impl Into<String>) -> StoreError {
    StoreError::Corrupt { what: what.into() }
}

/// A row whose text is encrypted and does not decrypt.
pub(crate) fn encrypted(what: &str) -> impl Fn(KeyringError) -> StoreError {
    move |error| corrupt(format!("{what}: {error}"))
}

/// A text that cannot be encrypted now.
pub(crate) fn not_encrypted(error: KeyringError) -> StoreError {
    StoreError::Unavailable {
        source: error.into(),
    }
}

/// Whether the same statement may succeed later, when the disk or the file is well again.
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
