//! Outcomes of calls to remote systems, and results of look-ups.

use serde::Serialize;

use crate::sink::BoxError;

/// The outcome of a call to a remote system.
#[derive(Debug)]
pub enum Outcome<T> {
    /// It has happened, with this result.
    Done(T),
    /// It has not happened, and under this key it never will.
    Refused(Refusal),
    /// The outcome is unknown: a timeout, a connection reset, a 5xx after bytes were sent, or a
    /// crash.
    Unknown(BoxError),
}

/// The result of a look-up of a key at a remote system.
#[derive(Debug)]
pub enum Found<T> {
    /// It has happened, with this result.
    Done(T),
    /// It was refused.
    Refused(Refusal),
    /// Nothing has happened under this key.
    Absent,
    /// The query failed.
    Unknown(BoxError),
}

/// Why a remote system refused a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{code}: {detail}")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Refusal {
    /// A code from a small set: `declined`, `out_of_stock`.
    pub code: String,
    /// The message, for an operator.
    pub detail: String,
}

impl Refusal {
    /// Creates a refusal.
    pub fn new(code: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            detail: detail.into(),
        }
    }
}

impl<T> Outcome<T> {
    /// Maps the result.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(made) => Outcome::Done(convert(made)),
            Self::Refused(refusal) => Outcome::Refused(refusal),
            Self::Unknown(error) => Outcome::Unknown(error),
        }
    }
}

impl<T> Found<T> {
    /// Maps the result.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Found<U> {
        match self {
            Self::Done(made) => Found::Done(convert(made)),
            Self::Refused(refusal) => Found::Refused(refusal),
            Self::Absent => Found::Absent,
            Self::Unknown(error) => Found::Unknown(error),
        }
    }
}
