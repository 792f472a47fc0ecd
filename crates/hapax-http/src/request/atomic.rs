//! Atomic mode: the key, the handler's rows, its events and its response are one commit.
//!
//! The key is claimed before the handler starts, or together with its first statement. An operation
//! may try an optimistic claim before that.

use std::time::Duration;

use axum::response::Response;
use hapax::{
    idempotency::{Disposition, Taken},
    limits::{RERUN_PAUSE, RERUNS},
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    RequestContext,
    claim_guard::{ClaimGuard, claim_problem},
    optimistic::{Unclaimed, optimistic},
    run::Finished,
    unprotected,
};
use crate::{
    header,
    operation::ClaimMode,
    problem::{self, Problem, TIMEOUT},
    tx::Slot,
};

/// A request of a client that leaves it less time than this is refused before its claim is sent. To
/// stop it in a statement would close its connection.
const LEAST: Duration = Duration::from_millis(10);

/// Claims the key, runs the handler in the transaction, and completes or releases the key.
///
/// If the transaction conflicts with another one, it has committed nothing, and the request runs
/// again.
pub(super) async fn atomic<K: Keys>(
    mut context: RequestContext<K>,
    mut guard: ClaimGuard<K>,
) -> Response {
    let end = context.end();
    if context
        .deadline
        .is_some_and(|deadline| deadline < Instant::now() + LEAST)
    {
        return no_time(guard);
    }
    let mut mode = claim_mode(&context, &guard);
    if mode == ClaimMode::Optimistic {
        match Box::pin(optimistic(context, guard, end)).await {
            Ok(response) => return response,
            Err(unclaimed) => {
                Unclaimed {
                    context,
                    guard,
                    mode,
                } = unclaimed;
            }
        }
    }
    for rerun in 1..=RERUNS {
        let again = context.again();
        let settings = context.operation.idempotency.settings();
        let pause = RERUN_PAUSE.mul_f64(settings.random.unit() * f64::from(rerun));
        match once(context, guard, end, mode).await {
            Ok(response) => return response,
            Err(lost) => guard = lost.guard,
        }
        guard.retract();
        // After a conflict, the next run claims before the handler starts.
        mode = ClaimMode::First;
        sleep(pause).await;
        context = again;
    }
    match once(context, guard, end, ClaimMode::First).await {
        Ok(response) => response,
        Err(Lost { guard, error }) => guard.failed(&error.into()),
    }
}

/// When the first run of a request claims the key.
///
/// A service that fails open claims before the handler starts, because a handler that has started
/// must not run again without its key. So does a request that is probably a duplicate: an optimistic
/// claim would lose, and its handler would have run for nothing.
///
/// If responses are kept only for a short time, the claim is pipelined: a duplicate that is executed
/// during an optimistic run must still be known at its end.
fn claim_mode<K: Keys>(context: &RequestContext<K>, guard: &ClaimGuard<K>) -> ClaimMode {
    let mode = context.operation.policy.claim_mode;
    let attempt = header::attempt(&context.parts.headers);
    let is_duplicate = !guard.is_first() || attempt.is_some_and(|number| number > 1);
    if context.fails_open() || (mode == ClaimMode::Optimistic && is_duplicate) {
        return ClaimMode::First;
    }
    if mode == ClaimMode::Optimistic && may_expire(context) {
        return ClaimMode::Pipelined;
    }
    mode
}

/// Whether a response that is stored when a run starts may expire before the run has ended: the
/// handler has its time limit, and the commit about the same time again.
fn may_expire<K: Keys>(context: &RequestContext<K>) -> bool {
    let handler_max = context.operation.idempotency.settings().handler_max;
    context.operation.policy.retention <= handler_max.saturating_mul(2)
}

/// A run whose transaction conflicted with another one.
struct Lost<K: Keys> {
    guard: ClaimGuard<K>,
    error: StoreError,
}

async fn once<K: Keys>(
    context: RequestContext<K>,
    mut guard: ClaimGuard<K>,
    end: Instant,
    mode: ClaimMode,
) -> Result<Response, Lost<K>> {
    let claim = claim(&guard, mode);
    let parsed = Instant::now();
    match timeout_at(end, claim).await {
        Ok(Ok(ClaimOutcome::Open(tx))) => {
            if mode == ClaimMode::First {
                guard.confirm();
            }
            in_transaction(context, guard, tx, end).await
        }
        Ok(Ok(ClaimOutcome::Taken(taken))) => {
            if taken == Taken::InProgress {
                // Another node has the key, and the store has waited for it.
                guard.operation.counts.wait(parsed.elapsed());
            }
            Ok(guard.taken(taken))
        }
        Ok(Err(error @ StoreError::Conflict { .. })) => Err(Lost { guard, error }),
        Ok(Err(error)) => Ok(without_the_key(context, guard, error).await),
        Err(_) => Ok(no_time(guard)),
    }
}

pub(super) fn no_time<K: Keys>(guard: ClaimGuard<K>) -> Response {
    let problem = Problem::new(TIMEOUT).detail("the time ran out before the claim");
    let response = problem::write_out(&problem, &guard.id);
    guard.released(response)
}

async fn claim<K: Keys>(
    guard: &ClaimGuard<K>,
    mode: ClaimMode,
) -> Result<ClaimOutcome<K::Tx>, StoreError> {
    let (store, claim) = (guard.operation.idempotency.store(), guard.claim.clone());
    if mode == ClaimMode::First {
        store.claim(claim).await
    } else {
        store.claim_pipelined(claim, guard.on_claimed()).await
    }
}

async fn in_transaction<K: Keys>(
    mut context: RequestContext<K>,
    mut guard: ClaimGuard<K>,
    tx: K::Tx,
    end: Instant,
) -> Result<Response, Lost<K>> {
    guard.start();
    let slot = Slot::holding(tx);
    context.parts.extensions.insert(slot.clone());
    let run = context.into_run(end);
    let ((), finished) = run.finish(|response| ((), response)).await;
    let Some(mut tx) = slot.close() else {
        let kept = "the handler still held its transaction when it responded; it was rolled back";
        let response = problem::write_out(&Problem::internal(kept), &guard.id);
        return Ok(guard.released(response));
    };
    if let Some(taken) = tx.taken() {
        tx.rollback().await;
        return Ok(guard.taken(taken));
    }
    if tx.has_conflict() || finished.is_conflict() {
        tx.rollback().await;
        let source = "a statement conflicted with another transaction".into();
        let error = StoreError::Conflict { source };
        return Err(Lost { guard, error });
    }
    complete(guard, tx, finished).await
}

async fn complete<K: Keys>(
    guard: ClaimGuard<K>,
    tx: K::Tx,
    finished: Finished,
) -> Result<Response, Lost<K>> {
    let effect = match guard.operation.policy.verdict(&finished) {
        Disposition::WithEffect => Effect::Keep,
        Disposition::EffectFree => Effect::Drop,
        Disposition::Release => {
            tx.rollback().await;
            return Ok(guard.not_stored(finished));
        }
    };
    let (response, exchange, extensions) = finished.split(&guard.operation.policy.per_request);
    match tx.complete(&response, effect).await {
        Ok(fresh_for) => Ok(guard.stored(response, fresh_for, exchange, extensions)),
        // The pipelined claim of a handler without a statement is sent here. The next run claims
        // before the handler starts.
        Err(error @ (StoreError::Conflict { .. } | StoreError::NotClaimed)) => {
            Err(Lost { guard, error })
        }
        Err(error) => Ok(guard.failed(&error.into())),
    }
}

/// Handles a claim that failed: refuses the request, or runs it unprotected if the service is
/// configured to.
async fn without_the_key<K: Keys>(
    context: RequestContext<K>,
    guard: ClaimGuard<K>,
    error: StoreError,
) -> Response {
    // If the row of a key exists but cannot be read, its request may have had its effect.
    let is_taken = matches!(error, StoreError::Corrupt { .. });
    let is_open = context.fails_open() && !is_taken;
    // The key may have been purged since, but running without a key would be worse.
    if is_open && let Some(status) = guard.cached_response() {
        return guard.respond(&status);
    }
    if guard.has_started() {
        return guard.failed(&error.into());
    }
    if is_open {
        // `guard` is kept until the end, so that duplicates on this node still join.
        return unprotected::without_store(context, &error, &guard.claim.scope.key).await;
    }
    guard.failed(&claim_problem(error))
}
