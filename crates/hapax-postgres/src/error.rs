//! Errors as decisions: try again, run again, or change something first.
//!
//! [`OpenError`] and [`SchemaError`] occur at start and say what to do. Later failures become
//! [`StoreError`]: `Unavailable` if the same request may succeed later (no connection, server
//! shutting down, read-only, no space), `Conflict` if the transaction conflicted with another one
//! and can be run again at once, `Statement` if it will fail again.

use deadpool_postgres::PoolError;
use hapax::{
    keyring::KeyringError,
    sink::BoxError,
    store::{DatabaseError, DatabaseErrorKind, StoreError},
};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// Why a database was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The settings cannot be used.
    #[error("settings of the database are not usable: {problem}")]
    Settings {
        /// What is wrong.
        problem: String,
    },
    /// The database cannot be reached now, or refuses the role.
    #[error("database cannot be reached")]
    Unavailable {
        /// The cause.
        source: BoxError,
    },
    /// It is a standby: writes go to the primary.
    #[error("database is a read-only standby: connect to the primary")]
    Standby,
    /// The tables are not those that this version knows.
    #[error("database has another schema")]
    Schema {
        /// What is different.
        #[from]
        source: SchemaError,
    },
}

/// Why a schema was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// Some or all of the tables are missing, and the settings say not to make them.
    #[error(
        "schema {namespace:?} is at version {found}, version {known} is needed: apply its migrations"
    )]
    Older {
        /// Whose tables.
        namespace: String,
        /// The version that was found, 0 when there is none.
        found: u32,
        /// The version that this program needs.
        known: u32,
    },
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
        /// The error of the database.
        source: StoreError,
    },
    /// The database could not be read or written.
    #[error("schema could not be read or written")]
    Store(#[source] StoreError),
}

/// Classifies the failure of a statement on the store's own tables.
pub(crate) fn own_error(failed: impl Into<StoreError>) -> StoreError {
    let error: StoreError = failed.into();
    error.of_own_statement()
}

/// Sorts what the database or the driver said about a statement.
pub(crate) fn store_error(error: tokio_postgres::Error) -> StoreError {
    let Some(state) = error.code() else {
        // Without a code it is the driver's: a value that does not fit its place, or the wire.
        return if is_wire(&error) {
            unavailable(error)
        } else {
            StoreError::statement(error)
        };
    };
    if is_stale(&error) {
        return StoreError::conflict(error);
    }
    let state = state.clone();
    let fatal = error.as_db_error().is_some_and(is_fatal);
    let outcome = error.as_db_error();
    if outcome.is_some_and(|outcome| is_given_again(&state, outcome.schema(), outcome.table())) {
        return unavailable(error);
    }
    let constraint = outcome.and_then(DbError::constraint).map(str::to_owned);
    sorted(&state, fatal, constraint, error.into())
}

/// Whether an event got an id that another event has: the sequence of events was set back, and
/// the relay raises it within a second.
fn is_given_again(state: &SqlState, schema: Option<&str>, table: Option<&str>) -> bool {
    let is_outbox = table.is_some_and(|table| table.starts_with("outbox_event"));
    *state == SqlState::UNIQUE_VIOLATION && schema == Some("hapax") && is_outbox
}

fn sorted(
    state: &SqlState,
    fatal: bool,
    constraint: Option<String>,
    source: BoxError,
) -> StoreError {
    if *state == SqlState::QUERY_CANCELED || *state == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
    {
        StoreError::TimedOut
    } else if is_conflict(state) {
        StoreError::Conflict { source }
    } else if passes(state, fatal) {
        StoreError::Unavailable { source }
    } else {
        let refused = DatabaseError::new(kind(state), constraint, state.code(), source);
        StoreError::statement(refused)
    }
}

/// The kind of error that a SQLSTATE stands for.
fn kind(state: &SqlState) -> DatabaseErrorKind {
    match state.code() {
        "23505" => DatabaseErrorKind::UniqueViolation,
        "23503" => DatabaseErrorKind::ForeignKeyViolation,
        "23502" => DatabaseErrorKind::NotNullViolation,
        "23514" => DatabaseErrorKind::CheckViolation,
        "23P01" => DatabaseErrorKind::ExclusionViolation,
        code if code.starts_with("23") => DatabaseErrorKind::OtherConstraint,
        code if code.starts_with("22") => DatabaseErrorKind::InvalidInput,
        _ => DatabaseErrorKind::Other,
    }
}

/// The same for what sqlx said.
#[cfg(feature = "sqlx")]
pub(crate) fn sqlx_error(error: sqlx::Error) -> StoreError {
    use sqlx::postgres::{PgDatabaseError, PgSeverity};

    let sqlx::Error::Database(outcome) = &error else {
        return match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::BeginFailed
            | sqlx::Error::WorkerCrashed => unavailable(error),
            error => StoreError::statement(error),
        };
    };
    let outcome = outcome.downcast_ref::<PgDatabaseError>();
    let fatal = matches!(outcome.severity(), PgSeverity::Fatal | PgSeverity::Panic);
    let constraint = outcome.constraint().map(str::to_owned);
    let state = SqlState::from_code(outcome.code());
    if is_outdated(&state, outcome.routine()) {
        return StoreError::conflict(error);
    }
    if is_given_again(&state, outcome.schema(), outcome.table()) {
        return unavailable(error);
    }
    sorted(&state, fatal, constraint, error.into())
}

/// Whether it is not known what became of the statement: the connection is gone.
pub(crate) fn is_wire(error: &tokio_postgres::Error) -> bool {
    if error.is_closed() {
        return true;
    }
    let cause = std::error::Error::source(error);
    matches!(cause, Some(cause) if cause.is::<std::io::Error>())
        || error.as_db_error().is_some_and(is_fatal)
}

/// Whether the server takes no writes: it was a primary, or the address leads to a standby.
pub(crate) fn is_read_only(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// Whether a statement that the connection has prepared no longer fits the database: a migration
/// has changed its result, or it was deallocated. If it is prepared again, on another connection,
/// it may succeed.
pub(crate) fn is_stale(error: &tokio_postgres::Error) -> bool {
    let error = error.as_db_error();
    error.is_some_and(|error| is_outdated(error.code(), error.routine()))
}

/// The same, by the SQLSTATE and the routine of the server that reports it.
fn is_outdated(state: &SqlState, routine: Option<&str>) -> bool {
    *state == SqlState::INVALID_SQL_STATEMENT_NAME
        || (*state == SqlState::FEATURE_NOT_SUPPORTED && routine == Some("RevalidateCachedQuery"))
}

/// Whether it was the last word on its connection. A pooler that loses the server says it in its
/// own words, without the field that no language changes.
fn is_fatal(error: &DbError) -> bool {
    match error.parsed_severity() {
        Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
        None => ["FATAL", "PANIC"].contains(&error.severity()),
    }
}

/// The refusal of a statement that would end its transaction. The server has the same code for a
/// procedure that commits in a transaction.
pub(crate) fn ends_transaction(keyword: &str) -> StoreError {
    let why = format!("{keyword} was not executed: the store ends the transaction");
    let state = SqlState::INVALID_TRANSACTION_TERMINATION;
    let refused = DatabaseError::new(DatabaseErrorKind::Other, None, state.code(), why);
    StoreError::statement(refused)
}

/// Converts the error of a pool that has no connection.
pub(crate) fn no_connection(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => unavailable(error),
        error => unavailable(error),
    }
}

/// A store that cannot do anything now.
pub(crate) fn unavailable(source: impl Into<BoxError>) -> StoreError {
    StoreError::unavailable(source)
}

/// A stored row that cannot be read.
pub(crate) fn corrupt(what: impl Into<String>) -> StoreError {
    StoreError::Corrupt { what: what.into() }
}

/// A row whose text is encrypted and does not decrypt.
pub(crate) fn encrypted(what: &str) -> impl Fn(KeyringError) -> StoreError {
    move |error| corrupt(format!("{what}: {error}"))
}

/// Whether nothing was committed because another transaction came first.
fn is_conflict(state: &SqlState) -> bool {
    [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
    ]
    .contains(state)
}

/// Whether the same statement may succeed later, when the server is well again.
fn passes(state: &SqlState, fatal: bool) -> bool {
    if *state == SqlState::PROTOCOL_VIOLATION {
        // A pooler that lost its server, or parameters that do not fit their statement.
        return fatal;
    }
    let class = &state.code()[..2];
    // 08 connection, 53 out of resources, 57 operator intervention, 58 system error. After a fatal
    // error the connection is gone, regardless of the code.
    fatal
        || ["08", "53", "57", "58"].contains(&class)
        || [
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::INVALID_PASSWORD,
            SqlState::DATA_CORRUPTED,
            SqlState::INDEX_CORRUPTED,
        ]
        .contains(state)
}

/// The error of a transaction that conflicted with another one.
pub(crate) fn lost(how: &'static str) -> StoreError {
    StoreError::Conflict { source: how.into() }
}
