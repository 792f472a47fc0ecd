//! Requests that run without a key, because the operation allows it or the store is unavailable.
//!
//! The handler still gets a transaction, if one can be opened. Its rows and events are committed or
//! rolled back by the same rules as with a key, but the response is not stored.

use std::{sync::Arc, time::Duration};

use axum::response::Response;
use hapax::{
    idempotency::{Claim, Disposition, OnExpired, PlannedRequest, StoredResponse},
    key::{Fingerprint, IdempotencyKey, Operation, Scope, Tenant},
    request_log::Line,
    store::{Keys, StoreError, Transaction},
};
use http::HeaderValue;
use tokio::time::timeout_at;

use super::{
    RequestContext,
    claim_guard::claim_problem,
    line::RequestLine,
    run::{Finished, Run},
};
use crate::{
    header::IDEMPOTENCY_STATUS,
    operation::{KeyPolicy, ProtectedOperation},
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
pub(super) async fn unprotected<K: Keys>(context: RequestContext<K>) -> Response {
    if context.operation.policy.single_shot {
        return plan(context).await;
    }
    let outcome = keyless(&context);
    let store = context.operation.idempotency.store();
    let begin = store.begin(context.tenant(), context.context());
    match timeout_at(context.end(), begin).await {
        Ok(Ok(tx)) => run(context, Some(tx), outcome, None).await,
        Ok(Err(error)) if context.fails_open() => {
            warn(&context.operation.name, Some(&context.id), &error);
            run(context, None, Outcome::FailedOpen, None).await
        }
        Ok(Err(error)) => context.refuse(&claim_problem(error)),
        Err(_) => context.refuse(&Problem::new(TIMEOUT)),
    }
}

/// Runs a request whose claim failed, in a transaction if one can be opened.
pub(super) async fn without_store<K: Keys>(
    context: RequestContext<K>,
    error: &StoreError,
    key: &IdempotencyKey,
) -> Response {
    warn(&context.operation.name, Some(&context.id), error);
    let store = context.operation.idempotency.store();
    let begin = store.begin(context.tenant(), context.context());
    let tx = timeout_at(context.end(), begin)
        .await
        .ok()
        .and_then(Result::ok);
    run(context, tx, Outcome::FailedOpen, Some(key)).await
}

/// Returns the outcome of a request that has no key.
fn keyless<K: Keys>(context: &RequestContext<K>) -> Outcome {
    match context.operation.policy.key_policy {
        // The store did not return the secret from which the key is derived.
        KeyPolicy::Derived(_) => Outcome::FailedOpen,
        _ => Outcome::Bypassed,
    }
}

/// Runs the handler in a transaction without a key. `key` is the one that could not be claimed.
async fn run<K: Keys>(
    mut context: RequestContext<K>,
    tx: Option<K::Tx>,
    outcome: Outcome,
    key: Option<&IdempotencyKey>,
) -> Response {
    let (ending, end) = (Ending::of(&context), context.end());
    let opened = tx.is_some();
    let slot = tx.map_or_else(Slot::unreachable, Slot::holding);
    context.parts.extensions.insert(slot.clone());
    let run = context.into_run(end);
    let ((), finished) = run.finish(|response| ((), response)).await;
    match slot.close() {
        Some(tx) if ending.operation.policy.verdict(&finished) == Disposition::WithEffect => {
            if let Err(error) = tx.commit().await {
                let response = problem::write_out(&error.into(), &ending.id);
                return ending.end(Outcome::StoreError, key, response);
            }
        }
        Some(tx) => tx.rollback().await,
        None if opened => {
            let kept = "the handler still held its transaction when it responded";
            let response = problem::write_out(&Problem::internal(kept), &ending.id);
            return ending.end(outcome, key, bypassed(response));
        }
        None => {}
    }
    ending.finish(outcome, key, finished)
}

/// Executes a plan under a key that is generated for it.
async fn plan<K: Keys>(context: RequestContext<K>) -> Response {
    let (ending, end) = (Ending::of(&context), context.end());
    let (claim, outcome) = (minted(&context), keyless(&context));
    let run = context.into_run(end);
    let (plan, finished) = run.finish(write_plan::split::<K::Statement>).await;
    if ending.operation.policy.verdict(&finished) != Disposition::WithEffect {
        return ending.finish(outcome, None, finished);
    }
    let conflicts = plan.conflicts;
    let plan = PlannedRequest {
        claim,
        statements: plan.statements,
        events: plan.events,
        response: StoredResponse {
            status: finished.status().as_u16(),
            ..StoredResponse::default()
        },
        deadline: Some(end.into_std()),
    };
    let store = ending.operation.idempotency.store();
    match store.execute_plan(plan).await {
        Ok(_) => ending.finish(outcome, None, finished),
        Err(error) => {
            let response = problem::write_out(&conflicts.problem(error), &ending.id);
            ending.end(Outcome::StoreError, None, response)
        }
    }
}

fn minted<K: Keys>(context: &RequestContext<K>) -> Claim {
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

/// End of a request whose handler has run: what its response and its log line need.
struct Ending<K: Keys> {
    operation: Arc<ProtectedOperation<K>>,
    id: RequestId,
    line: RequestLine,
    tenant: Option<Tenant>,
}

impl<K: Keys> Ending<K> {
    fn of(context: &RequestContext<K>) -> Self {
        Self {
            operation: Arc::clone(&context.operation),
            id: context.id.clone(),
            line: context.line.clone(),
            tenant: context.tenant(),
        }
    }

    /// Ends with the handler's response. A failure of the store is not marked as bypassed.
    fn finish(
        &self,
        outcome: Outcome,
        key: Option<&IdempotencyKey>,
        finished: Finished,
    ) -> Response {
        if finished.is_store_failure() {
            return self.end(Outcome::StoreError, key, finished.into_response());
        }
        self.end(outcome, key, bypassed(finished.into_response()))
    }

    /// Counts the request and writes its line.
    fn end(&self, outcome: Outcome, key: Option<&IdempotencyKey>, response: Response) -> Response {
        self.operation.counts.request(outcome);
        let line = Line {
            key: key.map(IdempotencyKey::as_str),
            tenant: self.tenant.as_ref().map(Tenant::as_str),
            request_id: Some(self.id.as_str()),
            ..Line::default()
        };
        self.line
            .write(&self.operation, outcome.as_str(), &response, line);
        response
    }
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

impl<K: Keys> RequestContext<K> {
    /// Whether a request runs without its key while the store is unavailable.
    pub(super) fn fails_open(&self) -> bool {
        self.operation.fails_open()
    }

    fn refuse(&self, problem: &Problem) -> Response {
        let response = problem::write_out(problem, &self.id);
        Ending::of(self).end(Outcome::StoreError, None, response)
    }

    /// Converts the request into a run of its handler until `end`.
    pub(super) fn into_run(self, end: tokio::time::Instant) -> Run {
        Run {
            inner: self.inner,
            parts: self.parts,
            kept: self.kept,
            id: self.id,
            end,
        }
    }
}
