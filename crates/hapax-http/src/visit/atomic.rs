//! The atomic mode: the key, the handler's rows, its events and its answer are one commit.

use axum::response::Response;
use hapax::{
    idempotency::{OnStoreError, Remember},
    store::{Claimed, Effect, Keys, StoreError, Transaction},
};
use tokio::time::timeout_at;

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

/// Claims the key, runs the handler in its transaction, and completes or releases.
pub(super) async fn atomic<K: Keys, S: Inner>(visit: Visit<K, S>, held: Held<K>) -> Response {
    let end = visit.end();
    let claim = visit.act.idempotency.store().claim(held.claim.clone());
    match timeout_at(end, claim).await {
        Ok(Ok(Claimed::Open(tx))) => in_transaction(visit, held, tx, end).await,
        Ok(Ok(Claimed::Known(known))) => held.known(known),
        Ok(Err(error)) => without_the_key(visit, held, error).await,
        Err(_) => {
            let problem = Problem::new(TIMEOUT).detail("the time ran out before the key was taken");
            let answer = problem::write_out(&problem, &held.id);
            held.released(answer)
        }
    }
}

async fn in_transaction<K: Keys, S: Inner>(
    mut visit: Visit<K, S>,
    held: Held<K>,
    tx: K::Tx,
    end: tokio::time::Instant,
) -> Response {
    held.confirm();
    let slot = Slot::holding(tx);
    visit.parts.extensions.insert(slot.clone());
    let run = visit.into_run(end);
    let ((), finished) = run.finish(|response| ((), response)).await;
    let Some(tx) = slot.close() else {
        let kept = "the handler kept its transaction beyond its answer; it is rolled back";
        let answer = problem::write_out(&Problem::internal(kept), &held.id);
        return held.released(answer);
    };
    complete(held, tx, finished).await
}

async fn complete<K: Keys>(held: Held<K>, tx: K::Tx, finished: Finished) -> Response {
    let effect = match finished.verdict(held.act.terms.on_failure) {
        Remember::WithEffect => Effect::Keep,
        Remember::EffectFree => Effect::Drop,
        Remember::Release => {
            tx.rollback().await;
            return held.released(finished.into_response());
        }
    };
    let (answer, exchange, extensions) = finished.split(&held.act.terms.per_request);
    match tx.complete(&answer, effect).await {
        Ok(fresh_for) => held.stored(answer, fresh_for, exchange, extensions),
        Err(error) => held.failed(&error.into()),
    }
}

/// The key could not be taken: refuses, or runs unprotected where the service wants that.
async fn without_the_key<K: Keys, S: Inner>(
    visit: Visit<K, S>,
    held: Held<K>,
    error: StoreError,
) -> Response {
    match visit.act.idempotency.settings().on_store_error {
        OnStoreError::Closed => held.failed(&unclaimed(error)),
        // The key is held on this node until then: duplicates here still meet.
        OnStoreError::Open => unprotected::without_store(visit, &error).await,
    }
}
