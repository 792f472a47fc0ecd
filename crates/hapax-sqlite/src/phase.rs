//! One phase of an owned key: advancing or finishing it, fenced by the epoch of its owner.

use hapax::{phases::Ownership, store::StoreError};
use rusqlite::ToSql;

use crate::{error::own_error, idempotency::ResponseColumns, query, writer::WriterContext};

/// A phase: a transaction of a request that owns its key.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) owned: Ownership,
    pub(crate) recovery_point: Option<String>,
}

impl Phase {
    /// Writes the recovery point, if the request still owns its key.
    pub(crate) fn advance(
        &self,
        ctx: &WriterContext,
        transaction: Option<i64>,
    ) -> Result<(), StoreError> {
        let sql = query!("idempotency/advance");
        fenced(ctx, sql, &self.owned, &[&self.recovery_point, &transaction])
    }

    /// Stores the response, if the request still owns its key.
    pub(crate) fn finish(
        &self,
        ctx: &WriterContext,
        response: &ResponseColumns,
        transaction: Option<i64>,
    ) -> Result<(), StoreError> {
        let now = ctx.now();
        let values: [&dyn ToSql; 8] = [
            &response.state(),
            &response.status,
            &response.headers,
            &&*response.body,
            &now.as_millis(),
            &now.after(self.owned.retention).as_millis(),
            &transaction,
            &response.resource_id,
        ];
        fenced(ctx, query!("idempotency/finish"), &self.owned, &values)
    }
}

/// Runs a statement that changes only the row of this owner.
pub(crate) fn fenced(
    ctx: &WriterContext,
    sql: &str,
    owned: &Ownership,
    values: &[&dyn ToSql],
) -> Result<(), StoreError> {
    let scope = &owned.scope;
    let created_at = owned.created_at.as_millis();
    let (tenant, operation) = (scope.tenant.as_str(), scope.operation.as_str());
    let (key, epoch) = (scope.key.as_str(), owned.epoch);
    let fence: [&dyn ToSql; 5] = [&tenant, &operation, &key, &epoch, &created_at];
    let values = fence.iter().chain(values);
    let run = || {
        let mut statement = ctx.conn.prepare_cached(sql)?;
        for (place, value) in (1..).zip(values) {
            statement.raw_bind_parameter(place, value)?;
        }
        statement.raw_execute()
    };
    match run().map_err(own_error)? {
        1 => Ok(()),
        _ => Err(StoreError::Fenced),
    }
}
