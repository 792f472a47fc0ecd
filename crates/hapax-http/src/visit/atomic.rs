//! Atomic mode: the key, the handler's rows, its events and its response are one commit.

use axum::response::Response;
use hapax::{
    idempotency::{Known, OnStoreError, Remember},
    limits::{RERUN_PAUSE, RERUNS},
    store::{Claimed, Effect, Keys, StoreError, Transaction},
};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    Inner, Visit,
    held::{Held, unclaimed},
    run::Finished,
    unprotected,
};
use crate::{
    problem::{self, Problem, TIMEOUT},
    tx::Slot,
};

/// Claims the key, runs the handler in the transaction, and completes or releases the key.
///
/// If the transaction conflicts with another one, it has committed nothing, and the request runs
/// again.
pub(super) async fn atomic<K: Keys, S: Inner>(
    mut visit: Visit<K, S>,
    mut held: Held<K>,
) -> Response {
    let end = visit.end();
    // After a conflict, the claim is no longer pipelined: the next run claims before the handler
    // starts.
    let mut rides = visit.act.terms.rides;
    for rerun in 1..=RERUNS {
        let again = match Box::pin(visit.again()).await {
            Ok(again) => again,
            Err(problem) => return held.failed(&problem),
        };
        let settings = visit.act.idempotency.settings();
        let pause = RERUN_PAUSE.mul_f64(settings.random.unit() * f64::from(rerun));
        match once(visit, held, end, rides).await {
            Ok(response) => return response,
            Err(lost) => held = lost.held,
        }
        rides = false;
        sleep(pause).await;
        visit = again;
    }
    match once(visit, held, end, false).await {
        Ok(response) => response,
        Err(Lost { held, error }) => held.failed(&error.into()),
    }
}

/// A run whose transaction conflicted with another one.
struct Lost<K: Keys> {
    held: Held<K>,
    error: StoreError,
}

async fn once<K: Keys, S: Inner>(
    visit: Visit<K, S>,
    held: Held<K>,
    end: Instant,
    rides: bool,
) -> Result<Response, Lost<K>> {
    let claim = claim(&held, rides);
    let asked = Instant::now();
    match timeout_at(end, claim).await {
        Ok(Ok(Claimed::Open(tx))) => {
            if !rides {
                held.confirm();
            }
            in_transaction(visit, held, tx, end).await
        }
        Ok(Ok(Claimed::Known(known))) => {
            if known == Known::InProgress {
                // Another node has the key, and the store has waited for it.
                held.act.counts.wait(asked.elapsed());
            }
            Ok(held.known(known))
        }
        Ok(Err(error @ StoreError::Conflict { .. })) => Err(Lost { held, error }),
        Ok(Err(error)) => Ok(without_the_key(visit, held, error).await),
        Err(_) => {
            let problem = Problem::new(TIMEOUT).detail("the time ran out before the claim");
            let answer = problem::write_out(&problem, &held.id);
            Ok(held.released(answer))
        }
    }
}

async fn claim<K: Keys>(held: &Held<K>, rides: bool) -> Result<Claimed<K::Tx>, StoreError> {
    let (store, claim) = (held.act.idempotency.store(), held.claim.clone());
    if rides {
        store.claim_with_first_statement(claim).await
    } else {
        store.claim(claim).await
    }
}

async fn in_transaction<K: Keys, S: Inner>(
    mut visit: Visit<K, S>,
    held: Held<K>,
    tx: K::Tx,
    end: Instant,
) -> Result<Response, Lost<K>> {
    let slot = Slot::holding(tx);
    visit.parts.extensions.insert(slot.clone());
    let run = visit.into_run(end);
    let ((), finished) = run.finish(|response| ((), response)).await;
    let Some(mut tx) = slot.close() else {
        let kept = "the handler still held its transaction when it responded; it was rolled back";
        let answer = problem::write_out(&Problem::internal(kept), &held.id);
        return Ok(held.released(answer));
    };
    if let Some(known) = tx.known() {
        tx.rollback().await;
        return Ok(held.known(known));
    }
    if tx.has_conflict() {
        tx.rollback().await;
        let source = "a statement conflicted with another transaction".into();
        let error = StoreError::Conflict { source };
        return Err(Lost { held, error });
    }
    complete(held, tx, finished).await
}

async fn complete<K: Keys>(
    held: Held<K>,
    tx: K::Tx,
    finished: Finished,
) -> Result<Response, Lost<K>> {
    let effect = match finished.verdict(held.act.terms.on_failure) {
        Remember::WithEffect => Effect::Keep,
        Remember::EffectFree => Effect::Drop,
        Remember::Release => {
            tx.rollback().await;
            return Ok(held.released(finished.into_response()));
        }
    };
    let (answer, exchange, extensions) = finished.split(&held.act.terms.per_request);
    match tx.complete(&answer, effect).await {
        Ok(fresh_for) => Ok(held.stored(answer, fresh_for, exchange, extensions)),
        // The pipelined claim of a handler without a statement is sent here. The next run claims
        // before the handler starts.
        Err(error @ (StoreError::Conflict { .. } | StoreError::NotClaimed)) => {
            Err(Lost { held, error })
        }
        Err(error) => Ok(held.failed(&error.into())),
    }
}

/// Handles a claim that failed: refuses the request, or runs it unprotected if the service is
/// configured to.
async fn without_the_key<K: Keys, S: Inner>(
    visit: Visit<K, S>,
    held: Held<K>,
    error: StoreError,
) -> Response {
    // If the row of a key exists but cannot be read, its request may have had its effect.
    let is_taken = matches!(error, StoreError::Corrupt { .. });
    match visit.act.idempotency.settings().on_store_error {
        // `held` is kept until the end, so that duplicates on this node still join.
        OnStoreError::Open if !is_taken => match held.remembered() {
            // The key may have been purged since, but running without a key would be worse.
            Some(told) => held.told(told),
            None => unprotected::without_store(visit, &error).await,
        },
        OnStoreError::Open | OnStoreError::Closed => held.failed(&unclaimed(error)),
    }
}
