//! Requests that run without a key, because the operation allows it or the store is unavailable.
//!
//! The handler still gets a transaction, if one can be opened. Its rows and events are committed or
//! rolled back by the same rules as with a key, but the response is not stored.

use std::time::Duration;

use axum::response::Response;
use hapax::{
    idempotency::{Claim, Disposition, OnExpired, OnStoreError, PlannedRequest, StoredResponse},
    key::{Fingerprint, IdempotencyKey, Operation, Scope, Tenant},
    store::{Keys, StoreError, Transaction},
};
use http::HeaderValue;
use tokio::time::timeout_at;

use super::{Inner, RequestContext, claim_guard::unclaimed, run::Run};
use crate::{
    header::IDEMPOTENCY_STATUS,
    operation::KeyPolicy,
    problem::{self, Problem, TIMEOUT, UNAVAILABLE},
    request_id::RequestId,
    telemetry::Outcome,
    tx::Slot,
    write_plan,
};

/// The retention of the key that is generated for a plan without a key. No client knows the key.
const MINTED_RETENTION: Duration = Duration::from_secs(1);

/// Runs a request without a key, because its operation allows that, or because its key could not be
/// derived.
pub(super) async fn unprotected<K: Keys, S: Inner>(context: RequestContext<K, S>) -> Response {
    if context.operation.policy.single_shot {
        return plan(context).await;
    }
    let outcome = keyless(&context);
    let store = context.operation.idempotency.store();
    let begin = store.begin(context.tenant(), context.context());
    match timeout_at(context.end(), begin).await {
        Ok(Ok(tx)) => run(context, Some(tx), outcome).await,
        Ok(Err(error)) if context.fails_open() => {
            warn(&context.operation.name, Some(&context.id), &error);
            run(context, None, Outcome::FailedOpen).await
        }
        Ok(Err(error)) => context.refuse(&unclaimed(error)),
        Err(_) => context.refuse(&Problem::new(TIMEOUT)),
    }
}

/// Runs a request whose claim failed, in a transaction if one can be opened.
pub(super) async fn without_store<K: Keys, S: Inner>(
    context: RequestContext<K, S>,
    error: &StoreError,
) -> Response {
    warn(&context.operation.name, Some(&context.id), error);
    let store = context.operation.idempotency.store();
    let begin = store.begin(context.tenant(), context.context());
    let tx = timeout_at(context.end(), begin)
        .await
        .ok()
        .and_then(Result::ok);
    run(context, tx, Outcome::FailedOpen).await
}

/// Returns the outcome of a request that has no key.
fn keyless<K: Keys, S: Inner>(context: &RequestContext<K, S>) -> Outcome {
    match context.operation.policy.key_policy {
        // The store did not return the secret from which the key is derived.
        KeyPolicy::Derived(_) => Outcome::FailedOpen,
        _ => Outcome::Bypassed,
    }
}

/// Runs the handler in a transaction without a key.
async fn run<K: Keys, S: Inner>(
    mut context: RequestContext<K, S>,
    tx: Option<K::Tx>,
    outcome: Outcome,
) -> Response {
    let (operation, id, end) = (context.operation.clone(), context.id.clone(), context.end());
    let opened = tx.is_some();
    let slot = tx.map_or_else(Slot::unreachable, Slot::holding);
    context.parts.extensions.insert(slot.clone());
    let run = context.into_run(end);
    let ((), finished) = run.finish(|response| ((), response)).await;
    match slot.close() {
        Some(tx) if finished.verdict(operation.policy.on_failure) == Disposition::WithEffect => {
            if let Err(error) = tx.commit().await {
                operation.counts.request(Outcome::StoreError);
                return problem::write_out(&error.into(), &id);
            }
        }
        Some(tx) => tx.rollback().await,
        None if opened => {
            operation.counts.request(outcome);
            let kept = "the handler still held its transaction when it responded";
            return bypassed(problem::write_out(&Problem::internal(kept), &id));
        }
        None => {}
    }
    if finished.is_store_failure() {
        operation.counts.request(Outcome::StoreError);
        return finished.into_response();
    }
    operation.counts.request(outcome);
    bypassed(finished.into_response())
}

/// Executes a plan under a key that is generated for it.
async fn plan<K: Keys, S: Inner>(context: RequestContext<K, S>) -> Response {
    let (operation, id, end) = (context.operation.clone(), context.id.clone(), context.end());
    let (claim, outcome) = (minted(&context), keyless(&context));
    let run = context.into_run(end);
    let (plan, finished) = run.finish(write_plan::split::<K::Statement>).await;
    if finished.verdict(operation.policy.on_failure) != Disposition::WithEffect {
        operation.counts.request(outcome);
        return bypassed(finished.into_response());
    }
    let conflicts = plan.conflicts;
    let plan = PlannedRequest {
        claim,
        statements: plan.statements,
        events: plan.events,
        response: StoredResponse {
            status: 204,
            ..StoredResponse::default()
        },
        deadline: Some(end.into_std()),
    };
    let carried_out = operation.idempotency.store().execute_plan(plan).await;
    match carried_out {
        Ok(_) => {
            operation.counts.request(outcome);
            bypassed(finished.into_response())
        }
        Err(error) => {
            operation.counts.request(Outcome::StoreError);
            problem::write_out(&conflicts.problem(error), &id)
        }
    }
}

fn minted<K: Keys, S: Inner>(context: &RequestContext<K, S>) -> Claim {
    let settings = context.operation.idempotency.settings();
    let placed = context.parts.extensions.get::<Tenant>();
    let tenant = placed.or(settings.tenant.as_ref()).cloned();
    Claim {
        scope: Scope {
            tenant: tenant.expect("a request without a tenant was refused"),
            operation: context.operation.name.clone(),
            key: IdempotencyKey::mint(&settings.random),
        },
        fingerprint: Fingerprint::from_bytes([0; 32]),
        retention: MINTED_RETENTION,
        on_expired: OnExpired::New,
        context: context.context(),
    }
}

fn bypassed(mut response: Response) -> Response {
    let value = HeaderValue::from_static("bypassed");
    response.headers_mut().insert(IDEMPOTENCY_STATUS, value);
    response
}

/// Logs that a service fails open. Without its key, a request may have been executed before.
pub(super) fn warn(operation: &Operation, id: Option<&RequestId>, error: &StoreError) {
    tracing::warn!(
        operation = operation.as_str(),
        request_id = id.map(RequestId::as_str),
        error_code = UNAVAILABLE.name(),
        error = error.error_chain(),
        "the store is not available: the request runs unprotected"
    );
}

impl<K: Keys, S: Inner> RequestContext<K, S> {
    /// Whether a request runs without its key while the store is unavailable.
    pub(super) fn fails_open(&self) -> bool {
        self.operation.idempotency.settings().on_store_error == OnStoreError::Open
    }

    fn refuse(&self, problem: &Problem) -> Response {
        self.operation.counts.request(Outcome::StoreError);
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
