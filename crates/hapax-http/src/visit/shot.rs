//! Single-shot operations: the handler returns a write plan, and the store executes it.

use axum::response::Response;
use hapax::{
    idempotency::{Known, Remember, SingleShot, judge},
    store::{Keys, Ran, StoreError},
};
use tokio::time::Instant;

use super::{
    Inner, Visit,
    held::{Held, unclaimed},
    run::Finished,
};
use crate::planned::{self, Conflicts, Plan};

/// Runs the handler and passes its plan to the store.
pub(super) async fn shot<K: Keys, S: Inner>(visit: Visit<K, S>, held: Held<K>) -> Response {
    let end = visit.end();
    let run = visit.into_run(end);
    let (plan, finished) = run.finish(planned::split::<K::Statement>).await;
    match finished.verdict(held.act.terms.on_failure) {
        Remember::Release => not_run(held, finished).await,
        Remember::WithEffect => carry_out(held, plan, finished, end).await,
        Remember::EffectFree => carry_out(held, Plan::default(), finished, end).await,
    }
}

async fn carry_out<K: Keys>(
    held: Held<K>,
    plan: Plan<K::Statement>,
    finished: Finished,
    end: Instant,
) -> Response {
    let conflicts = plan.conflicts;
    let plan = Plan {
        conflicts: Conflicts::default(),
        ..plan
    };
    let (held, error) = match write(held, plan, finished, end).await {
        Ok(response) => return response,
        Err(failed) => failed,
    };
    if !conflicts.knows(&error) {
        return failed(held, error);
    }
    // The problem is stored, like one that a handler raises, and nothing else is.
    let problem = conflicts.problem(error);
    let finished = Finished::problem(&problem, &held.id).await;
    match write(held, Plan::default(), finished, end).await {
        Ok(response) => response,
        Err((held, error)) => failed(held, error),
    }
}

/// Passes a plan to the store. Returns the key with the error if the store fails.
async fn write<K: Keys>(
    held: Held<K>,
    plan: Plan<K::Statement>,
    finished: Finished,
    end: Instant,
) -> Result<Response, (Held<K>, StoreError)> {
    let (answer, exchange, extensions) = finished.split(&held.act.terms.per_request);
    let shot = SingleShot {
        claim: held.claim.clone(),
        statements: plan.statements,
        events: plan.events,
        answer: answer.clone(),
        deadline: Some(end.into_std()),
    };
    match held.act.idempotency.store().single_shot(shot).await {
        Ok(Ran::Committed { fresh_for }) => {
            Ok(held.stored(answer, fresh_for, exchange, extensions))
        }
        Ok(Ran::Known(known)) => Ok(held.known(known)),
        Err(error) => Err((held, error)),
    }
}

fn failed<K: Keys>(held: Held<K>, error: StoreError) -> Response {
    let is_the_plans = matches!(error, StoreError::Event(_)) || error.database_error().is_some();
    held.failed(&if is_the_plans {
        error.into()
    } else {
        unclaimed(error)
    })
}

/// Ends without executing the plan. If the key was used before, its outcome has precedence.
async fn not_run<K: Keys>(held: Held<K>, finished: Finished) -> Response {
    match known(&held).await {
        Some(known) => held.known(known),
        None => held.released(finished.into_response()),
    }
}

/// Looks the key up. If the look-up fails, the handler's response is returned, as it had no effect.
async fn known<K: Keys>(held: &Held<K>) -> Option<Known> {
    let record = held
        .act
        .idempotency
        .store()
        .look_up(&held.claim.scope)
        .await;
    let record = record.ok().flatten()?;
    let now = record.read_at;
    judge(record, &held.claim, now)
}
