//! Processing of one request on a protected operation.
//!
//! The layer reads and hashes the request (`parsed`), looks it up in the replay cache, and joins it
//! with its duplicates (`join`). The leader of the duplicates runs the handler in a transaction
//! (`atomic`, `optimistic`), as a write plan (`plan`) or in phases (`phased`). It runs in a separate
//! task, so that it continues if its client disconnects.

mod inner;
mod line;
mod parsed;
mod join;
mod claim_guard;
mod run;
mod atomic;
mod optimistic;
mod phased;
mod quota;
mod plan;
mod unprotected;

use std::{convert::Infallible, sync::Arc, thread};

use axum::{extract::Request, response::Response};
use futures_util::future::BoxFuture;
use hapax::{
    event::Headers,
    idempotency::Claim,
    key::{Fingerprint, IdempotencyKey, Scope, Tenant, short_hash},
    request_log::Line,
    store::Keys,
};
use http::request::Parts;
use tokio::time::Instant;
use tracing::Instrument;

use crate::{
    body::Kept,
    cache::ScopeRef,
    header::{IDEMPOTENCY_KEY, echo},
    operation::ProtectedOperation,
    problem::{self, Problem},
    request_id::RequestId,
    settings::until,
    stored::Stored,
    telemetry::Outcome,
    trace,
};
pub(crate) use inner::Inner;
use line::{REFUSED, RequestLine};
use parsed::{ParsedRequest, Refusal};
pub(crate) use run::{Finished, Run};

/// A request whose body has been read, with what is needed to run its handler.
pub(crate) struct RequestContext<K: Keys> {
    operation: Arc<ProtectedOperation<K>>,
    inner: Inner,
    parts: Parts,
    kept: Kept,
    deadline: Option<Instant>,
    id: RequestId,
    line: RequestLine,
}

/// Processes a request on a protected method. `inner` is called only if its handler has to run.
pub(crate) async fn handle<K: Keys>(
    operation: Arc<ProtectedOperation<K>>,
    inner: Inner,
    request: Request,
) -> Result<Response, Infallible> {
    let arrived = Instant::now();
    let (parts, body) = request.into_parts();
    let reading = Reading {
        operation: &operation,
        parts: &parts,
        arrived,
    };
    let parsed = ParsedRequest::read(&operation, &parts, body).await;
    reading.end();
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(refusal) => return Ok(refused(&operation, &parts, arrived, &refusal)),
    };
    let Some(key) = parsed.key.as_deref() else {
        let (kept, deadline) = (parsed.kept, parsed.deadline);
        let context = RequestContext::new(operation, inner, parts, kept, deadline, arrived);
        let id = context.id.clone();
        let run = Box::pin(unprotected::unprotected(context));
        return Ok(Box::pin(apart(id, run)).await);
    };
    if tracing::span_enabled!(tracing::Level::DEBUG) {
        tracing::Span::current().record("idempotency.key_hash", short_hash(key));
    }
    if let Some(stored) = cached(&operation, &parsed, key).await {
        operation.counts.request(Outcome::Replayed);
        let response = stored.replay();
        let replayed = Line {
            key: Some(key),
            tenant: Some(parsed.tenant.as_str()),
            request_id: parts.extensions.get::<RequestId>().map(RequestId::as_str),
            from_state: Some(stored.state()),
            to_state: Some(stored.state()),
            ..Line::default()
        };
        let outcome = Outcome::Replayed.as_str();
        RequestLine::new(arrived, &parts).write(&operation, outcome, &response, replayed);
        return Ok(response);
    }
    let key = match IdempotencyKey::new(key) {
        Ok(key) => key,
        Err(error) => {
            let problem = Problem::internal(error);
            return Ok(problem::write_out(
                &problem,
                &request_id(&operation, &parts),
            ));
        }
    };
    let scope = Scope {
        tenant: parsed.tenant.clone(),
        operation: operation.name.clone(),
        key,
    };
    let (kept, deadline, fingerprint) = (parsed.kept, parsed.deadline, parsed.fingerprint);
    let context = RequestContext::new(operation, inner, parts, kept, deadline, arrived);
    Ok(Box::pin(context.protected(scope, fingerprint)).await)
}

impl<K: Keys> RequestContext<K> {
    fn new(
        operation: Arc<ProtectedOperation<K>>,
        inner: Inner,
        parts: Parts,
        kept: Kept,
        deadline: Option<Instant>,
        arrived: Instant,
    ) -> Self {
        let id = request_id(&operation, &parts);
        Self {
            line: RequestLine::new(arrived, &parts),
            operation,
            inner,
            parts,
            kept,
            deadline,
            id,
        }
    }

    /// Copies the request, so that it can run again if its transaction commits nothing.
    fn again(&self) -> Self {
        Self {
            operation: Arc::clone(&self.operation),
            inner: self.inner.clone(),
            parts: self.parts.clone(),
            kept: self.kept.clone(),
            deadline: self.deadline,
            id: self.id.clone(),
            line: self.line.clone(),
        }
    }

    async fn protected(self, scope: Scope, fingerprint: Fingerprint) -> Response {
        let key = echo(&scope.key);
        if let Some(excess) = self.operation.idempotency.quotas().excess(&scope.tenant) {
            let claim = self.claim(scope.clone(), fingerprint);
            let (operation, id) = (Arc::clone(&self.operation), self.id.clone());
            if let Some(problem) = quota::refusal(&operation, claim, excess).await {
                let mut response = problem::write_out(&problem, &id);
                let refused = line::of(&scope, &id);
                self.line.write(&operation, REFUSED, &response, refused);
                response.headers_mut().insert(IDEMPOTENCY_KEY, key);
                return response;
            }
        }
        let mut response = match join::join(&self.operation, &scope, fingerprint, self.deadline)
            .await
        {
            Ok(joined) => {
                let claim = self.claim(scope, fingerprint);
                let (id, line) = (self.id.clone(), self.line.clone());
                let guard = claim_guard::ClaimGuard::new(&self.operation, claim, joined, id, line);
                let id = self.id.clone();
                if let Some(phasing) = self.operation.phasing.clone() {
                    apart(id, Box::pin(phased::phased(self, guard, phasing))).await
                } else if self.operation.policy.single_shot {
                    apart(id, Box::pin(plan::plan(self, guard))).await
                } else {
                    apart(id, Box::pin(atomic::atomic(self, guard))).await
                }
            }
            Err(status) => {
                let (outcome, state) = (status.outcome(), status.state());
                self.operation.counts.request(outcome);
                let profile = self.operation.policy.profile;
                let response = status.into_response(&scope.key, profile, &self.id);
                let ended = Line {
                    from_state: state,
                    to_state: state,
                    ..line::of(&scope, &self.id)
                };
                let outcome = outcome.as_str();
                self.line.write(&self.operation, outcome, &response, ended);
                response
            }
        };
        response.headers_mut().insert(IDEMPOTENCY_KEY, key);
        response
    }

    fn claim(&self, scope: Scope, fingerprint: Fingerprint) -> Claim {
        let mut context = self.context();
        context.insert("idempotency_key_hash".to_owned(), scope.key.short_hash());
        Claim {
            scope,
            fingerprint,
            retention: self.operation.policy.retention,
            on_expired: self.operation.policy.on_expired,
            context,
        }
    }

    /// Returns the headers of this request's events.
    fn context(&self) -> Headers {
        let mut context = Headers::new();
        trace::write_context(&mut context, &self.parts, self.parts.extensions.get());
        // An invalid header of the client must not make the events of its request invalid.
        let sent = line::correlation_id(&self.parts).and_then(|sent| sent.to_str().ok());
        let correlation_id = sent.unwrap_or(self.id.as_str()).to_owned();
        context.insert("correlation_id".to_owned(), correlation_id);
        context
    }

    /// Returns the tenant of the request.
    fn tenant(&self) -> Option<Tenant> {
        parsed::tenant(&self.operation, &self.parts).ok().cloned()
    }

    /// Returns the end of the wait for the first request, for a duplicate that arrived at
    /// `arrived`.
    fn wait_end(&self, arrived: Instant) -> Instant {
        let end = until(arrived, self.operation.policy.wait);
        self.deadline.map_or(end, |deadline| deadline.min(end))
    }

    /// Returns the deadline of the handler.
    fn end(&self) -> Instant {
        let end = until(
            Instant::now(),
            self.operation.idempotency.settings().handler_max,
        );
        self.deadline.map_or(end, |deadline| deadline.min(end))
    }
}

/// A request whose body is being read. If it is dropped, because its client has disconnected, it
/// writes its line.
struct Reading<'a, K: Keys> {
    operation: &'a ProtectedOperation<K>,
    parts: &'a Parts,
    arrived: Instant,
}

impl<K: Keys> Reading<'_, K> {
    /// Ends without a line. The caller writes it.
    fn end(self) {
        std::mem::forget(self);
    }
}

impl<K: Keys> Drop for Reading<'_, K> {
    fn drop(&mut self) {
        // A panic, such as of the function that derives keys, does not come from the client.
        if thread::panicking() {
            return;
        }
        let refusal = Refusal::disconnected(self.parts);
        refused(self.operation, self.parts, self.arrived, &refusal);
    }
}

/// Returns the response for a request that could not be parsed, and writes its line.
fn refused<K: Keys>(
    operation: &ProtectedOperation<K>,
    parts: &Parts,
    arrived: Instant,
    refusal: &Refusal,
) -> Response {
    let id = request_id(operation, parts);
    let response = refusal.response(&id);
    let tenant = parsed::tenant(operation, parts).ok();
    let refused = Line {
        key: refusal.key.as_ref().map(IdempotencyKey::as_str),
        tenant: tenant.map(Tenant::as_str),
        request_id: Some(id.as_str()),
        ..Line::default()
    };
    let outcome = if refusal.is_store_failure() {
        operation.counts.request(Outcome::StoreError);
        Outcome::StoreError.as_str()
    } else {
        REFUSED
    };
    RequestLine::new(arrived, parts).write(operation, outcome, &response, refused);
    response
}

/// Looks the request up in the replay cache, without allocating memory.
///
/// Returns `None` if the cached response has another fingerprint; `join` handles the mismatch.
async fn cached<K: Keys>(
    operation: &ProtectedOperation<K>,
    parsed: &ParsedRequest<'_>,
    key: &str,
) -> Option<Arc<Stored>> {
    let scope = ScopeRef {
        tenant: parsed.tenant,
        operation: &operation.name,
        key,
    };
    let stored = operation.idempotency.cached_response(&scope).await?;
    (stored.fingerprint == parsed.fingerprint).then_some(stored)
}

/// Runs the future in a separate task, which continues if the client disconnects.
///
/// The future is boxed, so that Tokio's code of a task is compiled once and not for each kind of
/// request.
pub(crate) async fn apart(id: RequestId, run: BoxFuture<'static, Response>) -> Response {
    let running = tokio::spawn(run.instrument(tracing::Span::current()));
    match running.await {
        Ok(response) => response,
        Err(error) => problem::write_out(&Problem::internal(error), &id),
    }
}

fn request_id<K: Keys>(operation: &ProtectedOperation<K>, parts: &Parts) -> RequestId {
    let placed = parts.extensions.get::<RequestId>().cloned();
    placed.unwrap_or_else(|| RequestId::mint(&operation.idempotency.settings().random))
}
