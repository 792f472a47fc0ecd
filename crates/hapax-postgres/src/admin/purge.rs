//! Purge of a single key by an operator.
//!
//! The operator passes the version of the key that was displayed. A key that was used again or
//! finished since then has another version and is kept. The transaction that deletes the key also
//! records the purge for services that may have the response in their replay cache: each of them
//! drops it within [`PURGES_FRESH`](hapax::limits::PURGES_FRESH).

use hapax::{
    admin::{Actor, AdminError, KeyState, KeySummary, KeyVersion, key_object},
    limits::PURGES_KEPT,
    store::StoreError,
};
use serde_json::json;

use super::{audited::AuditedTransaction, keys};
use crate::{
    postgres::Postgres,
    query,
    value::{Param, rows},
};

/// Deletes a key if it still has this version.
pub(super) async fn purge(
    store: &Postgres,
    actor: &Actor,
    known: &KeySummary,
    version: KeyVersion,
    reason: &str,
) -> Result<(), AdminError> {
    let mut act = AuditedTransaction::begin(store).await?;
    let name: [&dyn Param; 3] = [&known.tenant, &known.operation, &known.key];
    // A transaction that runs under the key holds this lock, but no lock on a row.
    let locked = act.ask(query!("admin/hold_key"), &name).await?;
    let is_free = locked.first().is_some_and(|row| row.get(0));
    let is_gone = is_free && delete(&mut act, &name, version).await?;
    let object = key_object(known);
    let refusal = if is_gone {
        None
    } else if is_free {
        Some(refusal(&mut act, store, &name, version).await?)
    } else {
        Some(IN_PROGRESS.to_owned())
    };
    let outcome = if is_gone { "done" } else { "refused" };
    let detail = json!({"tenant": known.tenant, "reason": reason});
    act.note(actor, "purge", &object, &detail, outcome).await?;
    act.commit().await?;
    match refusal {
        None => Ok(()),
        Some(why) => Err(AdminError::conflict(format!("{object} {why}"))),
    }
}

const IN_PROGRESS: &str = "is in progress";

async fn delete(
    act: &mut AuditedTransaction<'_>,
    name: &[&dyn Param; 3],
    version: KeyVersion,
) -> Result<bool, StoreError> {
    let [tenant, operation, key] = *name;
    let params: [&dyn Param; 7] = [
        tenant,
        operation,
        key,
        &version.epoch,
        &version.claimed_at,
        &version.transaction,
        &rows(PURGES_KEPT),
    ];
    let gone = act.ask(query!("admin/purge_key"), &params).await?;
    Ok(!gone.is_empty())
}

/// Why a key was not deleted although this transaction holds its lock.
async fn refusal(
    act: &mut AuditedTransaction<'_>,
    store: &Postgres,
    name: &[&dyn Param; 3],
    version: KeyVersion,
) -> Result<String, StoreError> {
    let [tenant, operation, key] = *name;
    let params: [&dyn Param; 4] = [key, operation, tenant, &store.time()];
    let found = act.ask(query!("admin/key"), &params).await?;
    let Some(row) = found.first() else {
        return Ok("was already purged".to_owned());
    };
    let now = keys::record(row, store.keyring())?;
    if now.record.summary.state == KeyState::InProgress {
        return Ok(IN_PROGRESS.to_owned());
    }
    let live = act.ask(query!("admin/live_saga"), name).await?;
    let live: Option<String> = live.first().and_then(|row| row.get(0));
    Ok(match live {
        Some(saga) => format!("is kept until saga {saga}, which was started under it, ends"),
        None if now.version == version => "cannot be deleted".to_owned(),
        None => "has changed since it was looked at: it was used again since; look at it again"
            .to_owned(),
    })
}
