//! Conversion of errors of the store, the outbox and operators into problems, and of violated
//! constraints into problems of the service.

use hapax::{admin::AdminError, outbox::EventError, store::StoreError};

use super::{
    CONFLICT, Code, IN_PROGRESS, INTERNAL, MISUSE, Problem, STATEMENT, TIMEOUT, UNAVAILABLE,
};
use crate::settings::RETRY_AFTER;

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Unavailable { .. } | StoreError::Conflict { .. } | StoreError::Fenced => {
                Self::new(UNAVAILABLE)
                    .detail("the store is not available now; try again")
                    .retry_after(RETRY_AFTER)
                    .caused_by(error)
            }
            // The layer replaces this problem by the response of the key.
            StoreError::NotClaimed => Self::new(IN_PROGRESS)
                .detail("the key was not claimed; the response of the key replaces this one")
                .caused_by(error),
            // Not 409, which a sender may take for a final refusal. It has to deliver the message
            // again, and then a regular acceptance decides.
            StoreError::AcceptedBefore => Self::new(UNAVAILABLE)
                .detail("the message was accepted before; nothing was changed; try again")
                .retry_after(RETRY_AFTER)
                .caused_by(error),
            StoreError::TimedOut => Self::new(TIMEOUT)
                .detail("the transaction took too long and was rolled back")
                .caused_by(error),
            StoreError::EndedByHandler => Self::new(MISUSE)
                .detail(
                    "the handler has ended its transaction; it must neither commit nor roll back",
                )
                .caused_by(error),
            _ if error.database_error().is_some() => Self::new(STATEMENT)
                .detail("nothing was changed; the same request would be refused again")
                .caused_by(error),
            _ => Self::internal(error),
        }
    }
}

impl Problem {
    /// Converts the problem for a phased request: its key stays in progress, and a retry continues.
    pub(crate) fn unfinished(self) -> Self {
        if self.code() != STATEMENT {
            return self;
        }
        Self::new(INTERNAL)
            .detail("what this request has committed is kept; a retry continues from there")
            .caused_by(self.into_source())
    }
}

/// Converts a violated constraint into a problem of the service.
///
/// ```
/// use hapax::store::StoreError;
/// use hapax_http::{ConflictOn as _, Problem, problem::Code};
/// use hapax_sqlite::Tx;
///
/// const NUMBER_TAKEN: Code =
///     Code::new("CONFLICT.order.number_taken", 409, "An order with this number exists");
///
/// async fn insert(tx: &mut Tx, number: String) -> Result<(), Problem> {
///     tx.with(|db| db.execute("INSERT INTO shop_order (number) VALUES (?1)", [number]))
///         .await
///         .conflict_on("shop_order.number", NUMBER_TAKEN)?;
///     Ok(())
/// }
/// ```
pub trait ConflictOn<T>: Sized {
    /// Converts a failure that violates `constraint` into a problem of `code`. Other failures are
    /// unchanged. Calls for several constraints can be chained.
    ///
    /// `constraint` is the value of
    /// [`DatabaseError::constraint`](hapax::store::DatabaseError::constraint): a name on
    /// PostgreSQL, `table.column` for a unique constraint on SQLite.
    ///
    /// # Errors
    /// Returns the failure, as a problem of the service if it violates this constraint.
    fn conflict_on(self, constraint: &str, code: Code) -> Result<T, Problem>;
}

impl<T> ConflictOn<T> for Result<T, StoreError> {
    fn conflict_on(self, constraint: &str, code: Code) -> Result<T, Problem> {
        self.map_err(Problem::from).conflict_on(constraint, code)
    }
}

impl<T> ConflictOn<T> for Result<T, Problem> {
    fn conflict_on(self, constraint: &str, code: Code) -> Self {
        self.map_err(|problem| match problem.store_error() {
            Some(error) if error.constraint() == Some(constraint) => {
                Problem::new(code).caused_by(problem.into_source())
            }
            _ => problem,
        })
    }
}

impl From<EventError> for Problem {
    fn from(error: EventError) -> Self {
        Self::new(INTERNAL)
            .detail("an event of this request could not be emitted; nothing was changed")
            .caused_by(error)
    }
}

impl From<AdminError> for Problem {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::NotFound { .. } => Self::not_found().detail(error.to_string()),
            AdminError::Conflict { what } => Self::new(CONFLICT).detail(what),
            AdminError::Invalid { field, problem } => {
                let detail = format!("{field} {problem}");
                Self::invalid(field, detail)
            }
            AdminError::Busy => Self::new(UNAVAILABLE)
                .detail(error.to_string())
                .retry_after(RETRY_AFTER),
            AdminError::Store(error) => error.into(),
            other => Self::internal(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn retry_after_is_whole_seconds_and_at_least_one() {
        for (wait, seconds) in [
            (Duration::ZERO, 1),
            (Duration::from_millis(1_001), 2),
            (Duration::MAX, u64::MAX),
        ] {
            let problem = Problem::new(UNAVAILABLE).retry_after(wait);
            assert_eq!(problem.0.headers["retry-after"], seconds.to_string());
        }
    }

    #[test]
    fn a_message_that_was_accepted_before_is_to_be_delivered_again() {
        let problem = Problem::from(StoreError::AcceptedBefore);
        assert_eq!(problem.code().name(), "DEPENDENCY.unavailable");
        assert!(problem.0.headers.contains_key("retry-after"));
    }

    #[test]
    fn a_transaction_that_its_handler_has_ended_asks_for_no_retry() {
        let problem = Problem::from(StoreError::EndedByHandler);
        assert_eq!(problem.code().name(), "INTERNAL");
        assert!(!problem.code().retryable());
    }

    #[test]
    fn an_error_of_an_operator_has_the_code_of_its_kind() {
        check(AdminError::not_found("job 7"), "NOT_FOUND", None);
        check(
            AdminError::conflict("it was changed"),
            "CONFLICT.state",
            None,
        );
        let invalid = AdminError::invalid("since", "must be a time");
        check(invalid, "VALIDATION.member", Some("since"));
        let unavailable = StoreError::unavailable("no connection");
        check(unavailable.into(), "DEPENDENCY.unavailable", None);
        check(AdminError::Busy, "DEPENDENCY.unavailable", None);
    }

    #[track_caller]
    fn check(error: AdminError, code: &str, member: Option<&str>) {
        let problem = Problem::from(error);
        assert_eq!(problem.code().name(), code);
        assert_eq!(problem.named_member(), member);
    }
}
