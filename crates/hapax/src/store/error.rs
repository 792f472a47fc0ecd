//! Why a store did not do what it was asked, and what a database refused.
//!
//! A [`StoreError`] says whether the same thing may be tried again. A
//! [`DatabaseError`] says of a statement that may not what kind of refusal it met,
//! in the same words for every database, so that a service can answer it.

use std::{fmt, sync::Arc};

use crate::{outbox::EventError, sink::BoxError, telemetry::story};

/// Why a store did not do what it was asked.
///
/// The variant answers: may the same thing be tried again, and is it known that nothing happened?
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached or cannot write now (disk full, read-only, shut down).
    #[error("store is unavailable")]
    Unavailable {
        /// What went wrong.
        source: BoxError,
    },
    /// The transaction took too long and was rolled back.
    #[error("transaction timed out and was rolled back")]
    TimedOut,
    /// The transaction lost against another one; nothing was committed, and it may run again at
    /// once.
    #[error("transaction lost against another one and was rolled back")]
    Conflict {
        /// What the database said.
        source: BoxError,
    },
    /// The claim that travelled with the first statement did not get the key; nothing was written.
    ///
    /// This is no failure. The transaction ends here: the key is answered already, or another
    /// transaction holds it, and the request is answered accordingly. Later statements of the same
    /// transaction are told the same.
    #[error("the key was not claimed, and the transaction ends here")]
    NotClaimed,
    /// Another owner took over; nothing was written.
    #[error("ownership was lost to a later epoch")]
    Fenced,
    /// The store is not in the history that was read: a backup was restored, or it was set back.
    /// Nothing was written, and the owner begins again at the checkpoint that the store holds.
    #[error("the store was set back: {what}")]
    SetBack {
        /// What the store holds, and what was read.
        what: String,
    },
    /// A statement failed, and would fail again; its transaction was rolled back.
    ///
    /// Where the database refused it, the source is a [`DatabaseError`]:
    /// [`StoreError::database_error`] finds it.
    #[error("statement failed")]
    Statement {
        /// What the database said.
        source: BoxError,
    },
    /// The database holds something this version does not understand.
    #[error("stored row is unreadable: {what}")]
    Corrupt {
        /// What could not be read.
        what: String,
    },
    /// An event could not be carried.
    #[error(transparent)]
    Event(#[from] EventError),
}

impl StoreError {
    /// What the database refused, when it was the database that did.
    pub fn database_error(&self) -> Option<&DatabaseError> {
        let Self::Statement { source } = self else {
            return None;
        };
        source.downcast_ref()
    }

    /// Whether a row with the same unique columns is there already.
    pub fn is_unique_violation(&self) -> bool {
        let error = self.database_error();
        error.is_some_and(|error| error.kind() == DatabaseErrorKind::UniqueViolation)
    }

    /// The constraint that a statement violates: see [`DatabaseError::constraint`].
    pub fn constraint(&self) -> Option<&str> {
        self.database_error()?.constraint()
    }

    /// Whether the transaction ends here because its claim, which travelled with this statement, did
    /// not get the key: see [`StoreError::NotClaimed`].
    ///
    /// The layer discards whatever the handler makes of it and answers the request by the key. A
    /// service that logs or counts the errors of its handlers leaves this one out.
    pub fn is_not_claimed(&self) -> bool {
        matches!(self, Self::NotClaimed)
    }

    /// The failure and what caused it, in one line.
    pub fn story(&self) -> String {
        story(self)
    }
}

/// A statement that the database refused.
///
/// It prints its kind, the constraint and the database's code. What the database said in full may
/// repeat the values of the row, and errors are logged: that is left to [`DatabaseError::driver`].
#[derive(Clone, Debug)]
pub struct DatabaseError {
    kind: DatabaseErrorKind,
    constraint: Option<String>,
    code: String,
    driver: Driver,
}

impl DatabaseError {
    /// A refusal of this kind; `code` is the database's own, such as the SQLSTATE `23505`.
    pub fn new(
        kind: DatabaseErrorKind,
        constraint: Option<String>,
        code: impl Into<String>,
        driver: impl Into<BoxError>,
    ) -> Self {
        Self {
            kind,
            constraint,
            code: code.into(),
            driver: Driver(Arc::new(driver.into())),
        }
    }

    /// What kind of refusal it is.
    pub fn kind(&self) -> DatabaseErrorKind {
        self.kind
    }

    /// The constraint that is violated, where the database names it.
    ///
    /// PostgreSQL gives its name. SQLite gives the columns of a unique constraint and of `NOT NULL`
    /// (`shop_order.number`, or `a.b, a.c` for several), the name or the text of a check, and
    /// nothing for a foreign key.
    pub fn constraint(&self) -> Option<&str> {
        self.constraint.as_deref()
    }

    /// The database's own code: a SQLSTATE on PostgreSQL, an extended result code on SQLite.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// What the driver said, to be downcast to its error.
    pub fn driver(&self) -> &BoxError {
        &self.driver.0
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DatabaseErrorKind::UniqueViolation => "a row with these unique values exists",
            DatabaseErrorKind::ForeignKeyViolation => "a row that is referred to is missing",
            DatabaseErrorKind::NotNullViolation => "a value that must be given is NULL",
            DatabaseErrorKind::CheckViolation => "a check is not satisfied",
            DatabaseErrorKind::ExclusionViolation => "a row that this one excludes exists",
            DatabaseErrorKind::OtherConstraint => "a constraint is violated",
            DatabaseErrorKind::InvalidInput => "a value does not fit",
            DatabaseErrorKind::Other => "the statement was refused",
        };
        write!(f, "{kind} (code {}", self.code)?;
        if let Some(constraint) = &self.constraint {
            write!(f, ", constraint {constraint:?}")?;
        }
        // What a statement that cannot run lacks is a name in it, and no value of a row.
        if self.kind == DatabaseErrorKind::Other {
            write!(f, ", {}", story(&**self.driver()))?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for DatabaseError {}

/// A driver's error, which prints nothing of itself.
#[derive(Clone)]
struct Driver(Arc<BoxError>);

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// What kind of refusal a statement met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatabaseErrorKind {
    /// A row with the same unique columns is there (SQLSTATE 23505).
    UniqueViolation,
    /// A row that is referred to is not there, or one that is referred to would go (23503).
    ForeignKeyViolation,
    /// A column that must have a value would have none (23502).
    NotNullViolation,
    /// A check constraint is not satisfied (23514).
    CheckViolation,
    /// An exclusion constraint is violated (23P01).
    ExclusionViolation,
    /// Another constraint, a trigger's for instance.
    OtherConstraint,
    /// A value does not fit its type (class 22).
    InvalidInput,
    /// Anything else that will fail again: a table that is missing, a right that is not granted.
    Other,
}
