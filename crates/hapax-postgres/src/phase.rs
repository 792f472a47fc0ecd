//! One phase of an owned key: the statement that ends it, fenced by the epoch of its owner.

use hapax::{idempotency::StoredResponse, phases::Ownership, store::StoreError};
use tokio_postgres::{Row, error::SqlState};

use crate::{
    connection::{Link, QueryError, Ready},
    error::own_error,
    idempotency::{ResponseColumns, parts},
    postgres::Postgres,
    query,
    session::PipelineError,
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
        let owned = &self.owned;
        let [tenant, operation, key] = parts(&owned.scope);
        let created_at = Moment(owned.created_at);
        let fence: [&dyn Param; 5] = [&tenant, &operation, &key, &owned.epoch, &created_at];
        let Some(response) = response else {
            let point = self.recovery_point.as_deref();
            let params = [&fence[..], &[&point]].concat();
            return link.rows(ready, &params).await;
        };
        let (headers, body): (&[u8], &[u8]) = (&response.headers, &response.body);
        let (state, retention) = (response.state(), millis(owned.retention));
        let resource_id = response.resource_id.as_deref();
        let values: [&dyn Param; 7] = [
            &state,
            &response.status,
            &headers,
            &body,
            &retention,
            &time,
            &resource_id,
        ];
        link.rows(ready, &[&fence[..], &values].concat()).await
    }

    /// Stores a response without an effect, in a separate transaction.
    pub(crate) async fn refuse(
        self,
        store: &Postgres,
        response: &StoredResponse,
    ) -> Result<(), StoreError> {
        let response = ResponseColumns::of(store.keyring(), &self.owned.scope, response)?;
        let mut session = store.session().await?;
        let sql = [Self::sql(Some(&response))];
        let ready = session.run(async |link| link.ready(sql).await).await;
        let [finish] = ready.map_err(own_error)?;
        let (begin, time) = (store.begin(), store.time());
        let results = session.pipeline_from(Some(&begin), |link| {
            vec![
                Box::pin(self.end(link, &finish, Some(&response), time)),
                Box::pin(link.none("COMMIT")),
            ]
        });
        match results.await {
            Ok(_) => {
                session.end();
                Ok(())
            }
            Err(PipelineError { cause, .. }) => {
                session.rollback().await;
                Err(match cause {
                    QueryError::Failed(error) if is_fenced(&error) => StoreError::Fenced,
                    cause => own_error(cause),
                })
            }
        }
    }
}

/// Whether the statement that ends a phase found that the key has another owner.
pub(crate) fn is_fenced(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::DIVISION_BY_ZERO)
}
