//! Decision of an operator about a key in progress whose outcome is unknown.
//!
//! The operator passes the version of the key that was displayed. A key that was resumed, finished or
//! released since then has another version and is kept. An owner that still runs, although its lease
//! has expired, is fenced by the state of the row.

use hapax::admin::{
    Actor, AdminError, KeyDecision, KeyOutcome, KeySummary, KeyVersion, key_object,
};
use rusqlite::params;

use super::{audited::AuditedTransaction, handle::SqliteAdmin};
use crate::{idempotency::ResponseColumns, query};

/// Why a key was not decided.
const CHANGED: &str = "is not waiting for a decision: it is running, or it was resumed, finished or \
    released since; look at it again";

/// Completes or frees a key in progress if it has no owner and still has this version.
pub(super) async fn decide(
    store: &SqliteAdmin,
    actor: &Actor,
    known: &KeySummary,
    version: KeyVersion,
    decision: &KeyDecision,
) -> Result<(), AdminError> {
    let (actor, known, decision) = (actor.clone(), known.clone(), decision.clone());
    let decide = move |act: &AuditedTransaction<'_>| {
        let is_done = write(act, &known, version, &decision)?;
        let object = key_object(&known);
        let detail = decision.detail(&known);
        let outcome = if is_done { "done" } else { "refused" };
        act.note(&actor, "decide", &object, &detail, outcome)?;
        let changed = || AdminError::conflict(format!("{object} {CHANGED}"));
        Ok(if is_done { Ok(()) } else { Err(changed()) })
    };
    store.change_or_refuse(decide).await
}

/// Writes the decision. Returns false if the key does not match.
fn write(
    act: &AuditedTransaction<'_>,
    known: &KeySummary,
    version: KeyVersion,
    decision: &KeyDecision,
) -> Result<bool, AdminError> {
    let KeySummary {
        tenant,
        operation,
        key,
        ..
    } = known;
    let now = act.now.as_millis();
    let KeyOutcome::Happened(response) = &decision.outcome else {
        let params = params![
            tenant,
            operation,
            key,
            version.epoch,
            version.claimed_at,
            version.transaction,
            now
        ];
        return Ok(act.execute(query!("admin/release_key"), params)? > 0);
    };
    let scope = decision.scope(tenant)?;
    let response = ResponseColumns::of(act.keyring, Some(&scope), response)?;
    let params = params![
        tenant,
        operation,
        key,
        version.epoch,
        version.claimed_at,
        version.transaction,
        now,
        response.state(),
        response.status,
        response.headers,
        &*response.body,
        response.resource_id
    ];
    Ok(act.execute(query!("admin/complete_key"), params)? > 0)
}
