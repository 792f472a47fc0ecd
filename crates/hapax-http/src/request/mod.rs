//! Processing of one request on a protected operation.
//!
//! The layer reads and hashes the request (`parsed`), looks it up in the replay cache, and joins it
//! with its duplicates (`join`). The leader of the duplicates runs the handler in a transaction
//! (`atomic`), as a write plan (`plan`) or in phases (`phased`). It runs in a separate task, so
//! that it continues if its client disconnects.

mod parsed;
mod join;
mod claim_guard;
mod run;
mod atomic;
mod phased;
mod quota;
mod plan;
mod unprotected;

use std::{convert::Infallible, future::Future, sync::Arc};

use axum::{extract::Request, response::Response};
use hapax::{
    event::Headers,
    idempotency::Claim,
    key::{Fingerprint, IdempotencyKey, Scope, Tenant},
    store::Keys,
};
use http::request::Parts;
use tokio::time::Instant;
use tower_service::Service;
use tracing::Instrument;

use crate::{
    body::Kept,
    cache::ScopeRef,
    header::{IDEMPOTENCY_KEY, echo},
    operation::ProtectedOperation,
    problem::{self, Problem},
    request_id::{self, RequestId},
    settings::until,
    stored::Stored,
    telemetry::Outcome,
    trace,
};
use parsed::ParsedRequest;
pub(crate) use run::{Finished, Run};

/// A service that the layer can wrap: an axum route.
pub(crate) trait Inner:
    Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<S> Inner for S where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// A request whose body has been read, with what is needed to run its handler.
pub(crate) struct RequestContext<K: Keys, S> {
    operation: Arc<ProtectedOperation<K>>,
    inner: S,
    parts: Parts,
    kept: Kept,
    deadline: Option<Instant>,
    id: RequestId,
}

/// Processes a request on a protected method.
pub(crate) async fn handle<K: Keys, S: Inner>(
    operation: Arc<ProtectedOperation<K>>,
    inner: S,
    request: Request,
) -> Result<Response, Infallible> {
    let (parts, body) = request.into_parts();
    let parsed = match ParsedRequest::read(&operation, &parts, body).await {
        Ok(parsed) => parsed,
        Err(refusal) => return Ok(refusal.into_response(&request_id(&operation, &parts))),
    };
    let Some(key) = parsed.key.as_deref() else {
        let (kept, deadline) = (parsed.kept, parsed.deadline);
        let context = RequestContext::new(operation, inner, parts, kept, deadline);
        let id = context.id.clone();
        let run = Box::pin(unprotected::unprotected(context));
        return Ok(Box::pin(apart(id, run)).await);
    };
    if let Some(stored) = cached(&operation, &parsed, key).await {
        operation.counts.request(Outcome::Replayed);
        return Ok(stored.replay());
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
    let context = RequestContext::new(operation, inner, parts, kept, deadline);
    Ok(Box::pin(context.protected(scope, fingerprint)).await)
}

impl<K: Keys, S: Inner> RequestContext<K, S> {
    fn new(
        operation: Arc<ProtectedOperation<K>>,
        inner: S,
        parts: Parts,
        kept: Kept,
        deadline: Option<Instant>,
    ) -> Self {
        let id = request_id(&operation, &parts);
        Self {
            operation,
            inner,
            parts,
            kept,
            deadline,
            id,
        }
    }

    /// Copies the request, so that it can run again if its transaction conflicts with another one.
    async fn again(&mut self) -> Result<Self, Problem> {
        Ok(Self {
            operation: Arc::clone(&self.operation),
            inner: self.inner.clone(),
            parts: self.parts.clone(),
            kept: self.kept.again().await?,
            deadline: self.deadline,
            id: self.id.clone(),
        })
    }

    async fn protected(self, scope: Scope, fingerprint: Fingerprint) -> Response {
        let key = echo(&scope.key);
        if let Some(excess) = self.operation.idempotency.quotas().excess(&scope.tenant) {
            let claim = self.claim(scope.clone(), fingerprint);
            let (operation, id) = (Arc::clone(&self.operation), self.id.clone());
            if let Some(problem) = quota::refusal(&operation, claim, excess).await {
                let mut response = problem::write_out(&problem, &id);
                response.headers_mut().insert(IDEMPOTENCY_KEY, key);
                return response;
            }
        }
        let mut response = match join::join(&self.operation, &scope, fingerprint, self.deadline)
            .await
        {
            Ok(joined) => {
                let claim = self.claim(scope, fingerprint);
                let guard =
                    claim_guard::ClaimGuard::new(&self.operation, claim, joined, self.id.clone());
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
                self.operation.counts.request(status.outcome());
                let profile = self.operation.idempotency.settings().profile;
                status.into_response(&scope.key, profile, &self.id)
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
        // An invalid header of the client must not make the events of its request invalid.
        let sent = |name: &str| {
            let value = self.parts.headers.get(name)?;
            request_id::is_sane(value.as_bytes()).then(|| value.to_str().ok().map(str::to_owned))?
        };
        let mut context = Headers::new();
        trace::carry(&mut context, &self.parts, self.parts.extensions.get());
        let correlation_id = sent("x-correlation-id");
        let correlation_id = correlation_id.unwrap_or_else(|| self.id.as_str().to_owned());
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
        let end = until(arrived, self.operation.idempotency.settings().wait);
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
    let stored = operation.idempotency.remembered(&scope).await?;
    (stored.fingerprint == parsed.fingerprint).then_some(stored)
}

/// Runs the future in a separate task, which continues if the client disconnects.
pub(crate) async fn apart(
    id: RequestId,
    run: impl Future<Output = Response> + Send + 'static,
) -> Response {
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
