//! Retrying a delivery now, instead of when its next attempt is due.
//!
//! The row is marked as requested by an operator, so that the relay that reads it does not wait for
//! an open breaker either.

use hapax::admin::{Actor, AdminError, delivery_object};
use rusqlite::params;
use serde_json::json;

use super::{dead_letters, handle::SqliteAdmin};
use crate::query;

/// Makes a delivery due that waits for its next attempt.
pub(super) async fn retry_now(
    admin: &SqliteAdmin,
    actor: &Actor,
    partition: &str,
    position: i64,
) -> Result<(), AdminError> {
    let (actor, partition) = (actor.clone(), partition.to_owned());
    admin
        .change_or_refuse(move |act| {
            let state = dead_letters::look(act, &actor, &partition, position)?;
            let params = params![partition, position, act.now.as_millis()];
            let is_retried = act.execute(query!("admin/retry_now"), params)? > 0;
            let outcome = if is_retried { "done" } else { "refused" };
            let object = delivery_object(&partition, position);
            act.note(&actor, "retry", &object, &json!({}), outcome)?;
            if is_retried {
                return Ok(Ok(()));
            }
            let what = format!("{object} is {state}: only one that is retrying can be retried now");
            Ok(Err(AdminError::conflict(what)))
        })
        .await
}
