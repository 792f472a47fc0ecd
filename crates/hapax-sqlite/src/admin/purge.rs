//! Purge of a single key by an operator.
//!
//! The operator passes the version of the key that was displayed. A key that was used again or
//! finished since then has another version and is kept. The transaction that deletes the key also
//! records the purge for the service that may have the response in its replay cache: it reads these
//! records and drops the response within [`PURGES_FRESH`](hapax::limits::PURGES_FRESH).

use hapax::{
    admin::{Actor, AdminError, KeyState, KeySummary, KeyVersion, key_object},
    limits::PURGES_KEPT,
};
use rusqlite::{Row, params};
use serde_json::json;

use super::{audited::AuditedTransaction, handle::SqliteAdmin};
use crate::{query, value::rows};

/// Deletes a key if it still has this version.
pub(super) async fn purge(
    store: &SqliteAdmin,
    actor: &Actor,
    known: &KeySummary,
    version: KeyVersion,
    reason: &str,
) -> Result<(), AdminError> {
    let (actor, known, reason) = (actor.clone(), known.clone(), reason.to_owned());
    let purge = move |act: &AuditedTransaction<'_>| {
        let refusal = if delete(act, &known, version)? {
            None
        } else {
            Some(refusal(act, &known, version)?)
        };
        let outcome = if refusal.is_none() { "done" } else { "refused" };
        let (object, detail) = (
            key_object(&known),
            json!({"tenant": known.tenant, "reason": reason}),
        );
        act.note(&actor, "purge", &object, &detail, outcome)?;
        let conflict = |why| Err(AdminError::conflict(format!("{object} {why}")));
        Ok(refusal.map_or(Ok(()), conflict))
    };
    store.change_or_refuse(purge).await
}

fn delete(
    act: &AuditedTransaction<'_>,
    known: &KeySummary,
    version: KeyVersion,
) -> Result<bool, AdminError> {
    let KeySummary {
        tenant,
        operation,
        key,
        ..
    } = known;
    let params = params![
        tenant,
        operation,
        key,
        version.epoch,
        version.claimed_at,
        version.transaction
    ];
    if act.execute(query!("admin/purge_key"), params)? == 0 {
        return Ok(false);
    }
    let noted = params![tenant, operation, key, act.now.as_millis()];
    let number = act.first(query!("idempotency/note_purge"), noted, |row| row.get(0))?;
    let number: i64 = number.unwrap_or(0);
    let forgotten = number.saturating_sub(rows(PURGES_KEPT));
    act.execute(query!("idempotency/drop_purges"), [forgotten])?;
    Ok(true)
}

/// Why a key was not deleted.
fn refusal(
    act: &AuditedTransaction<'_>,
    known: &KeySummary,
    version: KeyVersion,
) -> Result<String, AdminError> {
    let read = |row: &Row<'_>| {
        let now = KeyVersion {
            epoch: row.get("epoch")?,
            claimed_at: row.get("created_at")?,
            transaction: row.get("xid")?,
        };
        let (state, saga): (String, Option<String>) = (row.get("state")?, row.get("live_saga")?);
        Ok((now, state, saga))
    };
    let params = params![known.tenant, known.operation, known.key];
    let Some((now, state, saga)) = act.first(query!("admin/kept_key"), params, read)? else {
        return Ok("was already purged".to_owned());
    };
    if state == KeyState::InProgress.as_str() {
        return Ok("is in progress".to_owned());
    }
    Ok(match saga {
        Some(saga) => format!("is kept until saga {saga}, which was started under it, ends"),
        None if now == version => "cannot be deleted".to_owned(),
        None => "has changed since it was looked at: it was used again since; look at it again"
            .to_owned(),
    })
}
