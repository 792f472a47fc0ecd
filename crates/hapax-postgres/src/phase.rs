//! One phase of an owned key: the statement that ends it, fenced by the epoch of its owner.

use hapax::{phases::Ownership, store::StoreError};
use tokio_postgres::{Row, error::SqlState};

use crate::{
    connection::{Link, Ready},
    error::own_error,
    idempotency::{ResponseColumns, parts},
    postgres::Postgres,
    query,
    value::{Moment, Param, millis},
};

/// A phase of an owned key: what its last pipeline needs.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) owned: Ownership,
    pub(crate) recovery_point: Option<String>,
}

impl Phase {
    /// The statement that ends the phase: it finishes the key if there is a response, and otherwise
    /// advances it.
    pub(crate) fn sql(response: Option<&ResponseColumns>) -> &'static str {
        match response {
            Some(_) => query!("idempotency/finish"),
            None => query!("idempotency/advance"),
        }
    }

    /// Sends that statement. It fails if the key has another owner by now.
    pub(crate) async fn end(
        &self,
        link: &Link,
        ready: &Ready,
        response: Option<&ResponseColumns>,
        time: Option<Moment>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let values = Values::of(self, response, time);
        link.rows(ready, &values.params()).await
    }

    /// Runs that statement as a separate transaction, in one round trip. No row and no event
    /// belongs to it.
    ///
    /// # Errors
    /// `Fenced` if the key has another owner by now; `Unavailable` also if the result is lost, and
    /// then it may be committed.
    pub(crate) async fn end_alone(
        &self,
        store: &Postgres,
        response: Option<&ResponseColumns>,
    ) -> Result<(), StoreError> {
        let values = Values::of(self, response, store.time());
        let ended = store.commit(Self::sql(response), &values.params()).await;
        match ended {
            Ok(_) => Ok(()),
            Err(error) if is_fence(&error) => Err(StoreError::Fenced),
            Err(error) => Err(own_error(error)),
        }
    }
}

/// Whether the statement that ends a phase found that the key has another owner.
pub(crate) fn is_fenced(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::DIVISION_BY_ZERO)
}

/// The same for an error of the store.
fn is_fence(error: &StoreError) -> bool {
    let refused = error.database_error();
    refused.is_some_and(|refused| refused.code() == SqlState::DIVISION_BY_ZERO.code())
}

/// The values of the statement that ends a phase.
struct Values<'a> {
    scope: [&'a str; 3],
    epoch: i64,
    created_at: Moment,
    recovery_point: Option<&'a str>,
    response: Option<ResponseValues<'a>>,
}

/// The values of a response.
struct ResponseValues<'a> {
    state: &'static str,
    status: i16,
    headers: &'a [u8],
    body: &'a [u8],
    retention: i64,
    time: Option<Moment>,
    resource_id: Option<&'a str>,
}

impl<'a> Values<'a> {
    fn of(phase: &'a Phase, response: Option<&'a ResponseColumns>, time: Option<Moment>) -> Self {
        let owned = &phase.owned;
        Self {
            scope: parts(&owned.scope),
            epoch: owned.epoch,
            created_at: Moment(owned.created_at),
            recovery_point: phase.recovery_point.as_deref(),
            response: response.map(|response| ResponseValues {
                state: response.state(),
                status: response.status,
                headers: &response.headers,
                body: &response.body,
                retention: millis(owned.retention),
                time,
                resource_id: response.resource_id.as_deref(),
            }),
        }
    }

    fn params(&self) -> Vec<&dyn Param> {
        let [tenant, operation, key] = &self.scope;
        let fence: [&dyn Param; 5] = [tenant, operation, key, &self.epoch, &self.created_at];
        let mut params = fence.to_vec();
        if let Some(response) = &self.response {
            let values: [&dyn Param; 7] = [
                &response.state,
                &response.status,
                &response.headers,
                &response.body,
                &response.retention,
                &response.time,
                &response.resource_id,
            ];
            params.extend(values);
        } else {
            params.push(&self.recovery_point);
        }
        params
    }
}
