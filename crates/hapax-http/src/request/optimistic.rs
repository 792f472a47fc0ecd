//! Optimistic claims of atomic mode: the handler starts at once, and its key is claimed together with
//! its response.
//!
//! A run commits a new key with its effect and its response, or it commits nothing. In the second
//! case the request continues with a regular claim (`atomic`), which alone decides about replays,
//! mismatches, expired keys and keys in progress. The same happens if the handler returns a response
//! that is not stored: it may have failed because this request was executed before.

use axum::response::Response;
use hapax::{
    idempotency::Disposition,
    store::{Effect, Keys, StoreError, Transaction},
};
use tokio::time::{Instant, timeout_at};

use super::{
    RequestContext,
    atomic::no_time,
    claim_guard::{ClaimGuard, claim_problem},
    run::Finished,
};
use crate::{operation::ClaimMode, problem::Finality, telemetry::LostClaim, tx::Slot};

/// A request for which nothing was committed yet.
pub(super) struct Unclaimed<K: Keys> {
    pub(super) context: RequestContext<K>,
    pub(super) guard: ClaimGuard<K>,
    /// How the next run claims the key.
    pub(super) mode: ClaimMode,
}

/// Runs the handler in a transaction whose key is assumed to be free.
pub(super) async fn optimistic<K: Keys>(
    mut context: RequestContext<K>,
    mut guard: ClaimGuard<K>,
    end: Instant,
) -> Result<Response, Unclaimed<K>> {
    let store = context.operation.idempotency.store();
    let opened = timeout_at(end, store.claim_optimistic(guard.claim.clone())).await;
    let tx = match opened {
        Ok(Ok(Some(tx))) => tx,
        Ok(Ok(None)) => {
            return Err(Unclaimed {
                context,
                guard,
                mode: ClaimMode::Pipelined,
            });
        }
        Ok(Err(error)) => return Ok(guard.failed(&claim_problem(error))),
        Err(_) => return Ok(no_time(guard)),
    };
    let again = context.again();
    guard.start();
    let slot = Slot::holding(tx);
    context.parts.extensions.insert(slot.clone());
    context.parts.extensions.insert(Finality::Provisional);
    let ((), finished) = context
        .into_run(end)
        .finish(|response| ((), response))
        .await;
    let ended = match slot.close() {
        Some(tx) => complete(guard, tx, finished, end).await,
        // The handler still holds its transaction, which is rolled back. It does so again.
        None => Err((guard, LostClaim::NotStored)),
    };
    match ended {
        Ok(response) => Ok(response),
        Err((guard, reason)) => {
            guard.operation.counts.lost_claim(reason);
            Err(Unclaimed {
                context: again,
                guard,
                mode: ClaimMode::First,
            })
        }
    }
}

/// Commits the key with the handler's response. If nothing was committed, returns why.
async fn complete<K: Keys>(
    guard: ClaimGuard<K>,
    tx: K::Tx,
    finished: Finished,
    end: Instant,
) -> Result<Response, (ClaimGuard<K>, LostClaim)> {
    if tx.has_conflict() || finished.is_conflict() {
        tx.rollback().await;
        return Err((guard, LostClaim::Conflict));
    }
    let is_late = Instant::now() >= end;
    let effect = match guard.operation.policy.verdict(&finished) {
        // There is no time left to claim the key, and an unclaimed response is not an outcome.
        Disposition::Release if is_late => {
            tx.rollback().await;
            return Ok(no_time(guard));
        }
        // Failures are stored by a run that has claimed the key. It also logs them.
        _ if finished.status().is_server_error() && !is_late => None,
        Disposition::Release => None,
        Disposition::WithEffect => Some(Effect::Keep),
        Disposition::EffectFree => Some(Effect::Drop),
    };
    let Some(effect) = effect else {
        tx.rollback().await;
        return Err((guard, LostClaim::NotStored));
    };
    let (response, exchange, extensions) = finished.split(&guard.operation.policy.per_request);
    match tx.complete(&response, effect).await {
        Ok(fresh_for) => Ok(guard.stored(response, fresh_for, exchange, extensions)),
        // The commit may have happened, or may still happen. Only a retry can find out. Or the handler
        // has committed, and would do so again.
        Err(error @ (StoreError::Unavailable { .. } | StoreError::EndedByHandler)) => {
            Ok(guard.failed(&error.into()))
        }
        Err(StoreError::NotClaimed) => Err((guard, LostClaim::Taken)),
        Err(StoreError::Conflict { .. }) => Err((guard, LostClaim::Conflict)),
        Err(_) => Err((guard, LostClaim::NotStored)),
    }
}
