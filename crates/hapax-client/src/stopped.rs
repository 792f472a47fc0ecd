//! Reasons to end an operation: why there was no further attempt.

use std::time::Duration;

/// Why there was no further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// The response is final. Another attempt would not change it.
    Final,
    /// The receiver may have the request, and could not recognize the next one as the same.
    Unrepeatable,
    /// The maximum number of attempts was reached.
    Exhausted,
    /// The time limit was reached.
    Late,
    /// The receiver asks for this wait, which ends after the deadline.
    TooLate(Duration),
    /// The retry budget of the destination is exhausted.
    BudgetExhausted,
}

impl Stopped {
    /// The name in metrics and logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Final => "answered",
            Self::Unrepeatable => "unrepeatable",
            Self::Exhausted => "exhausted",
            Self::Late => "late",
            Self::TooLate(_) => "retry_after",
            Self::BudgetExhausted => "budget",
        }
    }
}
