//! Retrying a delivery now, instead of when its next attempt is due.
//!
//! The row is marked as requested by an operator, so that the relay that reads it does not wait for
//! an open breaker either.

use hapax::admin::{Actor, AdminError, delivery_object};
use serde_json::json;

use super::{audited::AuditedTransaction, dead_letters};
use crate::{postgres::Postgres, query, value::Param};

/// Makes a delivery due that waits for its next attempt.
pub(super) async fn retry_now(
    store: &Postgres,
    actor: &Actor,
    partition: &str,
    position: i64,
) -> Result<(), AdminError> {
    let mut act = AuditedTransaction::begin(store).await?;
    let state = dead_letters::look(&mut act, actor, partition, position).await?;
    let params: [&dyn Param; 3] = [&partition, &position, &store.now()];
    let retried = act.ask(query!("admin/retry_now"), &params).await?;
    let outcome = if retried.is_empty() {
        "refused"
    } else {
        "done"
    };
    let object = delivery_object(partition, position);
    act.note(actor, "retry", &object, &json!({}), outcome)
        .await?;
    act.commit().await?;
    if retried.is_empty() {
        let what = format!("{object} is {state}: only one that is retrying can be retried now");
        return Err(AdminError::conflict(what));
    }
    Ok(())
}
