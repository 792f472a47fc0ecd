//! Single-shot operations: the handler returns a write plan, and the store executes it.

use axum::response::Response;
use hapax::{
    idempotency::{Disposition, PlannedRequest, Taken, evaluate_claim},
    store::{ClaimOutcome, Keys, StoreError},
};
use tokio::time::Instant;

use super::{
    Inner, RequestContext,
    claim_guard::{ClaimGuard, unclaimed},
    run::Finished,
};
use crate::write_plan::{self, Conflicts, Plan};

/// Runs the handler and passes its plan to the store.
pub(super) async fn plan<K: Keys, S: Inner>(
    context: RequestContext<K, S>,
    guard: ClaimGuard<K>,
) -> Response {
    let end = context.end();
    let run = context.into_run(end);
    let (plan, finished) = run.finish(write_plan::split::<K::Statement>).await;
    match finished.verdict(guard.operation.policy.on_failure) {
        Disposition::Release => not_run(guard, finished).await,
        Disposition::WithEffect => carry_out(guard, plan, finished, end).await,
        Disposition::EffectFree => carry_out(guard, Plan::default(), finished, end).await,
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
    if !conflicts.knows(&error) {
        return failed(guard, error);
    }
    // The problem is stored, like one that a handler raises, and nothing else is.
    let problem = conflicts.problem(error);
    let finished = Finished::problem(&problem, &guard.id).await;
    match write(guard, Plan::default(), finished, end).await {
        Ok(response) => response,
        Err((guard, error)) => failed(guard, error),
    }
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
    let is_the_plans = matches!(error, StoreError::Event(_)) || error.database_error().is_some();
    // If the store is unavailable, it may have committed the plan before.
    let is_unknown = matches!(error, StoreError::Unavailable { .. });
    guard.failed(&if is_the_plans || is_unknown {
        error.into()
    } else {
        unclaimed(error)
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
