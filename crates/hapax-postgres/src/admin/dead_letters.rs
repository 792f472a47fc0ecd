//! Dead letters: replaying, editing and discarding them in a transaction.

use hapax::{
    admin::{self, Actor, AdminError, delivery_object},
    outbox::BuiltEvent,
};
use tokio_postgres::Row;

use super::audited::AuditedTransaction;
use crate::{delivery::settle::text, outbox, postgres::Postgres, query, value::Param};

/// The edited event that is offered in place of a dead letter's event.
pub(super) fn edited(store: &Postgres, row: &Row, patch: &str) -> Result<BuiltEvent, AdminError> {
    let event = outbox::event(row, store.keyring())
        .map_err(|error| AdminError::conflict(format!("it cannot be read here: {error}")))?;
    admin::edited(&event, row.get("headers"), patch, store.keyring())
}

/// Dead letters that one query counts.
pub(super) const COUNTED: i64 = 5_000;

/// Makes dead letters of a partition due again, in a transaction that has locked the partition.
pub(super) async fn replay_all(
    act: &mut AuditedTransaction<'_>,
    store: &Postgres,
    partition: &str,
    positions: &[i64],
) -> Result<u64, AdminError> {
    let now = store.now();
    let params: [&dyn Param; 3] = [&partition, &positions, &now];
    let replayed = act.ask(query!("admin/replay"), &params).await?;
    Ok(replayed.len() as u64)
}

/// Discards dead letters of a partition, in a transaction that has locked the partition.
pub(super) async fn discard_all(
    act: &mut AuditedTransaction<'_>,
    store: &Postgres,
    partition: &str,
    positions: &[i64],
    reason: &str,
) -> Result<u64, AdminError> {
    let (now, reason) = (store.now(), text(reason));
    let params: [&dyn Param; 4] = [&partition, &positions, &now, &reason];
    let discarded = act.ask(query!("admin/discard"), &params).await?;
    let keys = discarded
        .iter()
        .filter_map(|row| row.get::<_, Option<String>>(0));
    let keys: Vec<String> = keys.collect();
    if !keys.is_empty() {
        let params: [&dyn Param; 3] = [&partition, &keys, &now];
        act.ask(query!("delivery/release"), &params).await?;
    }
    Ok(discarded.len() as u64)
}

/// Locks the partition and checks that the delivery exists and this actor may see it. Returns its
/// state.
pub(super) async fn look(
    act: &mut AuditedTransaction<'_>,
    actor: &Actor,
    partition: &str,
    position: i64,
) -> Result<String, AdminError> {
    let name = text(partition);
    act.hold(&name).await?;
    let params: [&dyn Param; 2] = [&name, &position];
    let found = act.ask(query!("admin/delivery"), &params).await?;
    let is_seen = |row: &&Row| {
        let tenant: Option<&str> = row.get("tenant");
        actor.tenant().is_none_or(|own| tenant == Some(own))
    };
    let row = found.first().filter(is_seen);
    let row = row.ok_or_else(|| AdminError::not_found(delivery_object(partition, position)))?;
    Ok(row.get("state"))
}

/// Writes the outcome to the audit log and commits.
pub(super) async fn finish(
    mut act: AuditedTransaction<'_>,
    actor: &Actor,
    action: &str,
    partition: &str,
    position: i64,
    detail: serde_json::Value,
    changed: u64,
) -> Result<(), AdminError> {
    let object = delivery_object(partition, position);
    let outcome = if changed == 0 { "refused" } else { "done" };
    act.note(actor, action, &object, &detail, outcome).await?;
    act.commit().await?;
    if changed == 0 {
        return Err(AdminError::conflict(format!("{object} is not dead")));
    }
    Ok(())
}
