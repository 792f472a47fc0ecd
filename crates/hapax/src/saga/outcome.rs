//! What became of a call to a foreign system, and what a look-up found.

use crate::sink::BoxError;

/// What became of a call to a foreign system.
#[derive(Debug)]
pub enum Outcome<T> {
    /// It happened, and this is what it made.
    Done(T),
    /// It did not happen, and under this key it never will.
    Refused(Refusal),
    /// Nobody here knows: a timeout, a reset, a 5xx after bytes were sent, a crash in between.
    Unknown(BoxError),
}

/// What a foreign system knows about a key.
#[derive(Debug)]
pub enum Found<T> {
    /// It happened, and this is what it made.
    Done(T),
    /// It was refused.
    Refused(Refusal),
    /// Nothing happened under this key.
    Absent,
    /// It could not be asked.
    Unknown(BoxError),
}

/// Why a foreign system did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct Refusal {
    /// A word from a small set: `declined`, `out_of_stock`.
    pub code: String,
    /// What it said, for a person.
    pub detail: String,
}

impl Refusal {
    /// A refusal of this kind.
    pub fn new(code: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            detail: detail.into(),
        }
    }
}

impl<T> Outcome<T> {
    /// The same outcome with what was made turned into something else.
    pub fn map<U>(self, turn: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(made) => Outcome::Done(turn(made)),
            Self::Refused(refusal) => Outcome::Refused(refusal),
            Self::Unknown(error) => Outcome::Unknown(error),
        }
    }
}

impl<T> Found<T> {
    /// The same finding with what was made turned into something else.
    pub fn map<U>(self, turn: impl FnOnce(T) -> U) -> Found<U> {
        match self {
            Self::Done(made) => Found::Done(turn(made)),
            Self::Refused(refusal) => Found::Refused(refusal),
            Self::Absent => Found::Absent,
            Self::Unknown(error) => Found::Unknown(error),
        }
    }
}
