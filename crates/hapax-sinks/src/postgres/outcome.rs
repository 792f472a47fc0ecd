//! Outcomes of a batch in the receiver's database, transient or permanent.
//!
//! Errors in the row itself are permanent: a value that does not fit its column, or a constraint
//! that it violates. Errors that can be repaired (a missing partition), or that a later row repairs
//! (a foreign key), are not, and neither is an error raised by a trigger, whose reason is unknown.

use std::sync::Arc;

use hapax::sink::SinkError;
use tokio_postgres::error::SqlState;

use crate::resolve::LookupError;

/// Why an event was not written.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("connection to the receiver's database failed")]
    Link(#[source] Arc<tokio_postgres::Error>),
    #[error("receiver's database has no address")]
    Resolve(#[source] LookupError),
    #[error("receiver's database did not respond in time")]
    Silent,
    #[error("receiver's database has no hapax.inbox_message: run `hapax migrate` on it")]
    NoInbox,
    #[error("receiver's database has no table {0}")]
    NoTable(String),
    #[error("table {table} has no column {column}")]
    NoColumn { table: String, column: String },
    #[error("receiver's database refused the event: {message} (SQLSTATE {})", code.code())]
    Refused {
        code: SqlState,
        message: String,
        /// Whether the database names the violated constraint.
        has_constraint: bool,
    },
    #[error("payload is not JSON, and its column is not bytea")]
    Binary,
    #[error("event id was accepted before with another payload")]
    Mismatch,
    #[error(
        "receiver's inbox lost the event during the look-up, or has it from another source: run \
         `hapax migrate` on the database of the receiver"
    )]
    Forgotten,
}

impl Failure {
    /// Whether the statement failed because of one of its rows.
    pub(super) fn concerns_a_row(&self) -> bool {
        let Self::Refused { code, .. } = self else {
            return false;
        };
        matches!(class(code), "21" | "22" | "23" | "44" | "54" | "P0")
    }

    /// Whether the same event fails at every attempt.
    fn is_for_good(&self) -> bool {
        match self {
            Self::Binary | Self::Mismatch => true,
            Self::Refused {
                code,
                has_constraint,
                ..
            } => match *code {
                SqlState::FOREIGN_KEY_VIOLATION => false,
                // If no partition accepts a row, the violated check has no name.
                SqlState::CHECK_VIOLATION => *has_constraint,
                _ => matches!(class(code), "21" | "22" | "23" | "44" | "54"),
            },
            _ => false,
        }
    }

    fn error_type(&self) -> &'static str {
        match self {
            Self::Link(_) => "connect",
            Self::Resolve(_) => "resolve",
            Self::Silent => "timeout",
            Self::NoInbox | Self::NoTable(_) | Self::NoColumn { .. } => "schema",
            Self::Binary => "payload",
            Self::Mismatch => "mismatch",
            Self::Forgotten => "forgotten",
            Self::Refused { code, .. } => match class(code) {
                "22" | "54" => "value",
                "21" | "23" | "44" => "constraint",
                "28" => "login",
                "3D" | "3F" | "42" => "schema",
                "40" => "serialization",
                "53" => "full",
                _ => "refused",
            },
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            // The detail is omitted, because it quotes the row.
            Some(refusal) => Self::Refused {
                code: refusal.code().clone(),
                // The message about a value that does not fit quotes the value as well.
                message: match class(refusal.code()) {
                    "22" => "a value does not fit its column".to_owned(),
                    _ => refusal.message().to_owned(),
                },
                has_constraint: refusal.constraint().is_some(),
            },
            None => Self::Link(Arc::new(error)),
        }
    }
}

impl From<Failure> for SinkError {
    fn from(failure: Failure) -> Self {
        let error_type = failure.error_type();
        if failure.is_for_good() {
            Self::rejected(error_type, failure)
        } else if failure.concerns_a_row() || matches!(failure, Failure::Forgotten) {
            // An event is declined only after its row was tried alone.
            Self::declined(error_type, failure)
        } else {
            Self::unavailable(error_type, failure)
        }
    }
}

fn class(code: &SqlState) -> &str {
    code.code().get(..2).unwrap_or_default()
}
