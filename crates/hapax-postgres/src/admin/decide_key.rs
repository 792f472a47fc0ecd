//! Decision of an operator about a key in progress whose outcome is unknown.
//!
//! The operator passes the version of the key that was displayed. A key that was resumed, finished or
//! released since then has another version and is kept. An owner that still runs, although its lease
//! has expired, is fenced by the state of the row.

use hapax::{
    admin::{Actor, AdminError, KeyDecision, KeyOutcome, KeySummary, KeyVersion, key_object},
    store::StoreError,
};

use super::audited::AuditedTransaction;
use crate::{idempotency::ResponseColumns, postgres::Postgres, query, value::Param};

/// Why a key was not decided.
const CHANGED: &str = "is not waiting for a decision: it is running, or it was resumed, finished or \
    released since; look at it again";

/// Completes or frees a key in progress if it has no owner and still has this version.
pub(super) async fn decide(
    store: &Postgres,
    actor: &Actor,
    known: &KeySummary,
    version: KeyVersion,
    decision: &KeyDecision,
) -> Result<(), AdminError> {
    let response = match &decision.outcome {
        KeyOutcome::DidNotHappen => None,
        KeyOutcome::Happened(response) => {
            let scope = decision.scope(&known.tenant)?;
            Some(ResponseColumns::of(store.keyring(), &scope, response)?)
        }
    };
    let mut act = AuditedTransaction::begin(store).await?;
    let name: [&dyn Param; 3] = [&known.tenant, &known.operation, &known.key];
    // A transaction that runs under the key holds this lock, but no lock on a row.
    let locked = act.ask(query!("admin/hold_key"), &name).await?;
    let is_free = locked.first().is_some_and(|row| row.get(0));
    let is_done = is_free && write(&mut act, store, &name, version, response.as_ref()).await?;
    let object = key_object(known);
    let detail = decision.detail(known);
    let outcome = if is_done { "done" } else { "refused" };
    act.note(actor, "decide", &object, &detail, outcome).await?;
    act.commit().await?;
    if is_done {
        Ok(())
    } else {
        Err(AdminError::conflict(format!("{object} {CHANGED}")))
    }
}

/// Writes the decision. Returns false if the key does not match.
async fn write(
    act: &mut AuditedTransaction<'_>,
    store: &Postgres,
    name: &[&dyn Param; 3],
    version: KeyVersion,
    response: Option<&ResponseColumns>,
) -> Result<bool, StoreError> {
    let [tenant, operation, key] = *name;
    let (epoch, claimed_at) = (version.epoch, version.claimed_at);
    let (transaction, time) = (version.transaction, store.time());
    let fence: [&dyn Param; 6] = [tenant, operation, key, &epoch, &claimed_at, &transaction];
    let Some(response) = response else {
        let params = [&fence[..], &[&time]].concat();
        return Ok(!act
            .ask(query!("admin/release_key"), &params)
            .await?
            .is_empty());
    };
    let (headers, body): (&[u8], &[u8]) = (&response.headers, &response.body);
    let (state, resource_id) = (response.state(), response.resource_id.as_deref());
    let values: [&dyn Param; 6] = [
        &state,
        &response.status,
        &headers,
        &body,
        &resource_id,
        &time,
    ];
    let params = [&fence[..], &values].concat();
    Ok(!act
        .ask(query!("admin/complete_key"), &params)
        .await?
        .is_empty())
}
