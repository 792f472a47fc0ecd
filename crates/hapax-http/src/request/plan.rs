//! Single-shot operations: the handler returns a write plan, and the store executes it.

use std::time::Duration;

use axum::response::Response;
use hapax::{
    idempotency::{Disposition, PlannedRequest, Taken, evaluate_claim},
    store::{ClaimOutcome, Keys, StoreError},
};
use tokio::time::Instant;

use super::{
    RequestContext,
    claim_guard::{ClaimGuard, claim_problem},
    run::Finished,
};
use crate::write_plan::{self, Conflicts, Plan};

/// How long it may take to store a response without an effect, even if the time of the request has
/// run out.
const STORED_WITHIN: Duration = Duration::from_secs(1);

/// Runs the handler and passes its plan to the store.
pub(super) async fn plan<K: Keys>(context: RequestContext<K>, guard: ClaimGuard<K>) -> Response {
    let end = context.end();
    let run = context.into_run(end);
    let (plan, finished) = run.finish(write_plan::split::<K::Statement>).await;
    match guard.operation.policy.verdict(&finished) {
        Disposition::Release => not_run(guard, finished).await,
        Disposition::WithEffect => carry_out(guard, plan, finished, end).await,
        Disposition::EffectFree => store(guard, finished, end).await,
    }
}

async fn carry_out<K: Keys>(
    guard: ClaimGuard<K>,
    plan: Plan<K::Statement>,
    finished: Finished,
    end: Instant,
) -> Response {
    let conflicts = plan.conflicts;
    let plan = Plan {
        conflicts: Conflicts::default(),
        ..plan
    };
    let (guard, error) = match write(guard, plan, finished, end).await {
        Ok(response) => return response,
        Err(failed) => failed,
    };
    if !is_of_the_plan(&error) {
        return failed(guard, error);
    }
    // Nothing was changed. The problem is treated like one that a handler raises.
    let finished = Finished::problem(&conflicts.problem(error), &guard.id).await;
    if guard.operation.policy.verdict(&finished) == Disposition::Release {
        return guard.not_stored(finished);
    }
    store(guard, finished, end).await
}

/// Stores a response and nothing else.
async fn store<K: Keys>(guard: ClaimGuard<K>, finished: Finished, end: Instant) -> Response {
    let end = end.max(Instant::now() + STORED_WITHIN);
    match write(guard, Plan::default(), finished, end).await {
        Ok(response) => response,
        Err((guard, error)) => failed(guard, error),
    }
}

/// Whether the plan has failed, and not the store: the plan was refused, or its time has run out.
fn is_of_the_plan(error: &StoreError) -> bool {
    matches!(error, StoreError::Event(_) | StoreError::TimedOut) || error.database_error().is_some()
}

/// Passes a plan to the store. Returns the key with the error if the store fails.
async fn write<K: Keys>(
    guard: ClaimGuard<K>,
    plan: Plan<K::Statement>,
    finished: Finished,
    end: Instant,
) -> Result<Response, (ClaimGuard<K>, StoreError)> {
    let (response, exchange, extensions) = finished.split(&guard.operation.policy.per_request);
    let plan = PlannedRequest {
        claim: guard.claim.clone(),
        statements: plan.statements,
        events: plan.events,
        response: response.clone(),
        deadline: Some(end.into_std()),
    };
    match guard.operation.idempotency.store().execute_plan(plan).await {
        Ok(ClaimOutcome::Open(fresh_for)) => {
            Ok(guard.stored(response, fresh_for, exchange, extensions))
        }
        Ok(ClaimOutcome::Taken(taken)) => Ok(guard.taken(taken)),
        Err(error) => Err((guard, error)),
    }
}

fn failed<K: Keys>(guard: ClaimGuard<K>, error: StoreError) -> Response {
    // If the store is unavailable, it may have committed the plan before.
    let is_unknown = matches!(error, StoreError::Unavailable { .. });
    guard.failed(&if is_unknown {
        error.into()
    } else {
        claim_problem(error)
    })
}

/// Ends without executing the plan. If the key was used before, its outcome has precedence.
async fn not_run<K: Keys>(guard: ClaimGuard<K>, finished: Finished) -> Response {
    match taken(&guard).await {
        Some(taken) => guard.taken(taken),
        None => guard.not_stored(finished),
    }
}

/// Looks the key up. If the look-up fails, the handler's response is returned, as it had no effect.
async fn taken<K: Keys>(guard: &ClaimGuard<K>) -> Option<Taken> {
    let record = guard
        .operation
        .idempotency
        .store()
        .look_up(&guard.claim.scope)
        .await;
    let record = record.ok().flatten()?;
    let now = record.read_at;
    evaluate_claim(record, &guard.claim, now)
}
