//! The single-shot mode: the handler plans, the store does all of it in one go.

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

/// Lets the handler plan, and hands the plan to the store.
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
    // A refusal like those that a handler raises: it is remembered, and nothing else is.
    let problem = conflicts.problem(error);
    let finished = Finished::problem(&problem, &held.id).await;
    match write(held, Plan::default(), finished, end).await {
        Ok(response) => response,
        Err((held, error)) => failed(held, error),
    }
}

/// Hands a plan to the store; the key comes back where the store failed.
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

/// The plan comes to nothing; a key that was used before still says so.
async fn not_run<K: Keys>(held: Held<K>, finished: Finished) -> Response {
    match known(&held).await {
        Some(known) => held.known(known),
        None => held.released(finished.into_response()),
    }
}

/// Where the store cannot say, the answer goes out as it is: it left nothing behind.
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
