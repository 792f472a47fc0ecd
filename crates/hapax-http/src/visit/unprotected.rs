//! Requests that run without a key, because the operation allows it or the store is unavailable.
//!
//! The handler still gets a transaction, if one can be opened. Its rows and events are committed or
//! rolled back by the same rules as with a key, but the response is not stored.

use std::time::Duration;

use axum::response::Response;
use hapax::{
    idempotency::{Answer, Claim, OnExpired, OnStoreError, Remember, SingleShot},
    key::{Fingerprint, IdempotencyKey, Scope, Tenant},
    store::{Keys, StoreError, Transaction},
};
use http::HeaderValue;
use tokio::time::timeout_at;

use super::{Inner, Visit, held::unclaimed, run::Run};
use crate::{
    header::IDEMPOTENCY_STATUS,
    planned,
    problem::{self, Problem, TIMEOUT},
    telemetry::Outcome,
    tx::Slot,
};

/// The retention of the key that is generated for a plan without a key. No client knows the key.
const MINTED_RETENTION: Duration = Duration::from_secs(1);

/// Runs a request without a key, because its operation allows that.
pub(super) async fn unprotected<K: Keys, S: Inner>(visit: Visit<K, S>) -> Response {
    if visit.act.terms.single_shot {
        return shot(visit).await;
    }
    let store = visit.act.idempotency.store();
    let begin = store.begin(visit.tenant(), visit.context());
    match timeout_at(visit.end(), begin).await {
        Ok(Ok(tx)) => run(visit, Some(tx)).await,
        Ok(Err(error)) if visit.fails_open() => {
            visit.warn(&error);
            run(visit, None).await
        }
        Ok(Err(error)) => visit.refuse(&unclaimed(error)),
        Err(_) => visit.refuse(&Problem::new(TIMEOUT)),
    }
}

/// Runs a request whose claim failed, in a transaction if one can be opened.
pub(super) async fn without_store<K: Keys, S: Inner>(
    visit: Visit<K, S>,
    error: &StoreError,
) -> Response {
    visit.warn(error);
    let store = visit.act.idempotency.store();
    let begin = store.begin(visit.tenant(), visit.context());
    let tx = timeout_at(visit.end(), begin)
        .await
        .ok()
        .and_then(Result::ok);
    run(visit, tx).await
}

/// Runs the handler in a transaction without a key.
async fn run<K: Keys, S: Inner>(mut visit: Visit<K, S>, tx: Option<K::Tx>) -> Response {
    let (act, id, end) = (visit.act.clone(), visit.id.clone(), visit.end());
    let opened = tx.is_some();
    let slot = tx.map_or_else(Slot::unreachable, Slot::holding);
    visit.parts.extensions.insert(slot.clone());
    let run = visit.into_run(end);
    let ((), finished) = run.finish(|response| ((), response)).await;
    act.counts.request(Outcome::Bypassed);
    let ended = match slot.close() {
        Some(tx) if finished.verdict(act.terms.on_failure) == Remember::WithEffect => {
            tx.commit().await.map_err(Problem::from)
        }
        Some(tx) => {
            tx.rollback().await;
            Ok(())
        }
        None if opened => Err(Problem::internal(
            "the handler still held its transaction when it responded",
        )),
        None => Ok(()),
    };
    bypassed(match ended {
        Ok(()) => finished.into_response(),
        Err(problem) => problem::write_out(&problem, &id),
    })
}

/// Executes a plan under a key that is generated for it.
async fn shot<K: Keys, S: Inner>(visit: Visit<K, S>) -> Response {
    let (act, id, end) = (visit.act.clone(), visit.id.clone(), visit.end());
    let claim = minted(&visit);
    let run = visit.into_run(end);
    let (plan, finished) = run.finish(planned::split::<K::Statement>).await;
    if finished.verdict(act.terms.on_failure) != Remember::WithEffect {
        act.counts.request(Outcome::Bypassed);
        return bypassed(finished.into_response());
    }
    let shot = SingleShot {
        claim,
        statements: plan.statements,
        events: plan.events,
        answer: Answer {
            status: 204,
            ..Answer::default()
        },
        deadline: Some(end.into_std()),
    };
    let carried_out = act.idempotency.store().single_shot(shot).await;
    let outcome = if carried_out.is_ok() {
        Outcome::Bypassed
    } else {
        Outcome::StoreError
    };
    act.counts.request(outcome);
    match carried_out {
        Ok(_) => bypassed(finished.into_response()),
        Err(error) => problem::write_out(&plan.conflicts.problem(error), &id),
    }
}

fn minted<K: Keys, S: Inner>(visit: &Visit<K, S>) -> Claim {
    let settings = visit.act.idempotency.settings();
    let placed = visit.parts.extensions.get::<Tenant>();
    let tenant = placed.or(settings.tenant.as_ref()).cloned();
    Claim {
        scope: Scope {
            tenant: tenant.expect("a request without a tenant was refused"),
            operation: visit.act.operation.clone(),
            key: IdempotencyKey::mint(&settings.random),
        },
        fingerprint: Fingerprint::from_bytes([0; 32]),
        retention: MINTED_RETENTION,
        on_expired: OnExpired::New,
        context: visit.context(),
    }
}

fn bypassed(mut response: Response) -> Response {
    let value = HeaderValue::from_static("bypassed");
    response.headers_mut().insert(IDEMPOTENCY_STATUS, value);
    response
}

impl<K: Keys, S: Inner> Visit<K, S> {
    fn fails_open(&self) -> bool {
        self.act.idempotency.settings().on_store_error == OnStoreError::Open
    }

    fn warn(&self, error: &StoreError) {
        tracing::warn!(
            operation = self.act.operation.as_str(),
            request_id = self.id.as_str(),
            error = error.error_chain(),
            "the store is not available: the request runs unprotected"
        );
    }

    fn refuse(&self, problem: &Problem) -> Response {
        self.act.counts.request(Outcome::StoreError);
        problem::write_out(problem, &self.id)
    }

    /// Converts the request into a run of its handler until `end`.
    pub(super) fn into_run(self, end: tokio::time::Instant) -> Run<S> {
        Run {
            inner: self.inner,
            parts: self.parts,
            kept: self.kept,
            id: self.id,
            end,
        }
    }
}
