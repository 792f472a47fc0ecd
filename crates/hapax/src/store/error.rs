//! Errors of a store, and of the database below it.
//!
//! A [`StoreError`] says whether the same operation may be tried again. A [`DatabaseError`]
//! classifies a statement that the database refused, in the same way for every database, so that a
//! service can map it to a response.

use std::{fmt, sync::Arc};

use crate::{outbox::EventError, sink::BoxError, telemetry::error_chain};

/// An error of a store.
///
/// The variant says whether the operation may be tried again, and whether it is certain that
/// nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached, or cannot be used now (disk full, read-only, shut down, or one of
    /// its own tables is missing or may not be used).
    #[error("store is unavailable")]
    Unavailable {
        /// The cause.
        source: BoxError,
    },
    /// The transaction took too long and was rolled back.
    #[error("transaction timed out and was rolled back")]
    TimedOut,
    /// The transaction conflicted with another one. It was rolled back and may run again at once.
    #[error("transaction conflicted with another one and was rolled back")]
    Conflict {
        /// The error of the database.
        source: BoxError,
    },
    /// The claim was sent together with the first statement, or with the response, and the key was
    /// taken. Nothing was written.
    ///
    /// This is not a failure. The transaction ends here: the key has a response already, or another
    /// transaction holds it, and the request receives the response or the state of the key. Later
    /// statements of the same transaction return the same error.
    #[error("the key was not claimed, and the transaction has ended")]
    NotClaimed,
    /// The message that the commit would have accepted was accepted before. Nothing was written.
    ///
    /// This is not a failure. The consumer accepts the message with
    /// [`Transaction::accept`](super::Transaction::accept) in another transaction, which finds out
    /// whether it is a duplicate.
    #[error("the message was accepted before, and the transaction has ended")]
    AcceptedBefore,
    /// A statement of the handler (`COMMIT`, `ROLLBACK`) has ended the transaction before the store
    /// could. What the handler had committed by then is kept. Nothing was written after that: no
    /// response, no event, no message.
    ///
    /// This is a mistake in the service, which is only found where the store does not see the
    /// handler's statements. Other stores refuse the statement.
    #[error("a statement of the handler has ended the transaction; what it committed is kept")]
    EndedByHandler,
    /// Another owner has taken over. Nothing was written.
    #[error("ownership was lost to a later epoch")]
    Fenced,
    /// The store is not in the history that was read before: a backup was restored, or the sequence
    /// was set back. Nothing was written, and the owner starts again at the checkpoint in the
    /// store.
    #[error("the store was set back: {what}")]
    SetBack {
        /// The state of the store, and the state that was read before.
        what: String,
    },
    /// A statement failed, and would fail again. Its transaction was rolled back.
    ///
    /// If the database refused the statement, the source is a [`DatabaseError`], which
    /// [`StoreError::database_error`] returns.
    #[error("statement failed")]
    Statement {
        /// The error of the database.
        source: BoxError,
    },
    /// The database contains a value that this version cannot read.
    #[error("stored row is unreadable: {what}")]
    Corrupt {
        /// The value that could not be read.
        what: String,
    },
    /// An event is not valid.
    #[error(transparent)]
    Event(#[from] EventError),
}

impl StoreError {
    /// The store cannot be used now.
    pub fn unavailable(source: impl Into<BoxError>) -> Self {
        let source = source.into();
        Self::Unavailable { source }
    }

    /// The transaction conflicted with another one.
    pub fn conflict(source: impl Into<BoxError>) -> Self {
        let source = source.into();
        Self::Conflict { source }
    }

    /// A statement failed, and would fail again.
    pub fn statement(source: impl Into<BoxError>) -> Self {
        let source = source.into();
        Self::Statement { source }
    }

    /// The refusal of the database, if the database caused this error.
    pub fn database_error(&self) -> Option<&DatabaseError> {
        let Self::Statement { source } = self else {
            return None;
        };
        source.downcast_ref()
    }

    /// Whether a row with the same unique columns exists already.
    pub fn is_unique_violation(&self) -> bool {
        let error = self.database_error();
        error.is_some_and(|error| error.kind() == DatabaseErrorKind::UniqueViolation)
    }

    /// The violated constraint: see [`DatabaseError::constraint`].
    pub fn constraint(&self) -> Option<&str> {
        self.database_error()?.constraint()
    }

    /// Whether the transaction ends here because its claim, which was sent together with this
    /// statement, found the key taken: see [`StoreError::NotClaimed`].
    ///
    /// The layer discards the handler's response and returns the response or the state of the key.
    /// A service that logs or counts the errors of its handlers should ignore this one.
    pub fn is_not_claimed(&self) -> bool {
        matches!(self, Self::NotClaimed)
    }

    /// The same error, for a statement on the store's own tables.
    ///
    /// If such a statement cannot run at all, because its table or a privilege is missing, the fault
    /// is not the request's, and the store is [`Unavailable`](Self::Unavailable) until an operator
    /// repairs it. The same error of a service's statement stays a [`Statement`](Self::Statement).
    #[must_use]
    pub fn of_own_statement(self) -> Self {
        let cannot_run = |source: &BoxError| {
            let refused = source.downcast_ref::<DatabaseError>();
            refused.is_some_and(|refused| refused.kind() == DatabaseErrorKind::Other)
        };
        match self {
            Self::Statement { source } if cannot_run(&source) => Self::Unavailable { source },
            error => error,
        }
    }

    /// The error and its causes, in one line.
    pub fn error_chain(&self) -> String {
        error_chain(self)
    }
}

/// A statement that the database refused.
///
/// It prints its kind, the constraint and the database's code. The database's full message may
/// contain values of the row, and errors are logged; use [`DatabaseError::driver`] to read it.
#[derive(Clone, Debug)]
pub struct DatabaseError {
    kind: DatabaseErrorKind,
    constraint: Option<String>,
    code: String,
    driver: Driver,
}

impl DatabaseError {
    /// Creates a refusal of this kind. `code` is the database's own code, such as the SQLSTATE
    /// `23505`.
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

    /// The kind of refusal.
    pub fn kind(&self) -> DatabaseErrorKind {
        self.kind
    }

    /// The violated constraint, if the database names it.
    ///
    /// PostgreSQL reports its name. SQLite reports the columns of a unique constraint and of `NOT
    /// NULL` (`shop_order.number`, or `a.b, a.c` for several), the name or the text of a check, and
    /// nothing for a foreign key.
    pub fn constraint(&self) -> Option<&str> {
        self.constraint.as_deref()
    }

    /// The database's code: a SQLSTATE on PostgreSQL, an extended result code on SQLite.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The driver's error, which can be downcast to its type.
    pub fn driver(&self) -> &BoxError {
        &self.driver.0
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DatabaseErrorKind::UniqueViolation => "a row with the same unique values exists",
            DatabaseErrorKind::ForeignKeyViolation => "a foreign key is violated",
            DatabaseErrorKind::NotNullViolation => "a required value is NULL",
            DatabaseErrorKind::CheckViolation => "a check is not satisfied",
            DatabaseErrorKind::ExclusionViolation => "an exclusion constraint is violated",
            DatabaseErrorKind::OtherConstraint => "a constraint is violated",
            DatabaseErrorKind::InvalidInput => "a value does not fit its type",
            DatabaseErrorKind::Other => "the statement was refused",
        };
        write!(f, "{kind} (code {}", self.code)?;
        if let Some(constraint) = &self.constraint {
            write!(f, ", constraint {constraint:?}")?;
        }
        // If a statement cannot run, its message contains a name of the statement and no value of a
        // row. The message of a function that raises an error (class P0) may contain anything.
        if self.kind == DatabaseErrorKind::Other && !self.code.starts_with("P0") {
            write!(f, ", {}", error_chain(&**self.driver()))?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for DatabaseError {}

/// Hides the message of a driver's error from `Debug`.
#[derive(Clone)]
struct Driver(Arc<BoxError>);

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// The kind of a refused statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatabaseErrorKind {
    /// A row with the same unique columns exists (SQLSTATE 23505).
    UniqueViolation,
    /// A referenced row does not exist, or a row that is still referenced would be deleted (23503).
    ForeignKeyViolation,
    /// A column that must have a value would have none (23502).
    NotNullViolation,
    /// A check constraint is violated (23514).
    CheckViolation,
    /// An exclusion constraint is violated (23P01).
    ExclusionViolation,
    /// Another constraint is violated, for example that of a trigger.
    OtherConstraint,
    /// A value does not fit its type (class 22).
    InvalidInput,
    /// Another error that would occur again, such as a missing table or a missing privilege.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_function_of_the_service_is_not_printed() {
        let printed = |code: &str| {
            let refused = DatabaseError::new(DatabaseErrorKind::Other, None, code, "planted");
            format!("{refused} {refused:?}")
        };
        assert!(printed("42P01").contains("planted"));
        assert!(!printed("P0001").contains("planted"));
    }
}
