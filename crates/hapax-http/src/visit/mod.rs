//! Processing of one request on a protected operation.
//!
//! The layer reads and hashes the request (`asked`), looks it up in the replay cache, and joins it
//! with its duplicates (`join`). The leader of the duplicates runs the handler in a transaction
//! (`atomic`), as a write plan (`shot`) or in phases (`phased`). It runs in a separate task, so
//! that it continues if its client disconnects.

mod asked;
mod join;
mod held;
mod run;
mod atomic;
mod phased;
mod quota;
mod shot;
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
    operation::Act,
    problem::{self, Problem},
    request_id::{self, RequestId},
    settings::until,
    stored::Stored,
    telemetry::Outcome,
    trace,
};
use asked::Asked;
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
pub(crate) struct Visit<K: Keys, S> {
    act: Arc<Act<K>>,
    inner: S,
    parts: Parts,
    kept: Kept,
    deadline: Option<Instant>,
    id: RequestId,
}

/// Processes a request on a protected method.
pub(crate) async fn answer<K: Keys, S: Inner>(
    act: Arc<Act<K>>,
    inner: S,
    request: Request,
) -> Result<Response, Infallible> {
    let (parts, body) = request.into_parts();
    let asked = match Asked::read(&act, &parts, body).await {
        Ok(asked) => asked,
        Err(refusal) => return Ok(refusal.into_response(&request_id(&act, &parts))),
    };
    let Some(key) = asked.key.as_deref() else {
        let (kept, deadline) = (asked.kept, asked.deadline);
        let visit = Visit::new(act, inner, parts, kept, deadline);
        let id = visit.id.clone();
        let run = Box::pin(unprotected::unprotected(visit));
        return Ok(Box::pin(apart(id, run)).await);
    };
    if let Some(stored) = cached(&act, &asked, key).await {
        act.counts.request(Outcome::Replayed);
        return Ok(stored.replay());
    }
    let key = match IdempotencyKey::new(key) {
        Ok(key) => key,
        Err(error) => {
            let problem = Problem::internal(error);
            return Ok(problem::write_out(&problem, &request_id(&act, &parts)));
        }
    };
    let scope = Scope {
        tenant: asked.tenant.clone(),
        operation: act.operation.clone(),
        key,
    };
    let (kept, deadline, fingerprint) = (asked.kept, asked.deadline, asked.fingerprint);
    let visit = Visit::new(act, inner, parts, kept, deadline);
    Ok(Box::pin(visit.protected(scope, fingerprint)).await)
}

impl<K: Keys, S: Inner> Visit<K, S> {
    fn new(
        act: Arc<Act<K>>,
        inner: S,
        parts: Parts,
        kept: Kept,
        deadline: Option<Instant>,
    ) -> Self {
        let id = request_id(&act, &parts);
        Self {
            act,
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
            act: Arc::clone(&self.act),
            inner: self.inner.clone(),
            parts: self.parts.clone(),
            kept: self.kept.again().await?,
            deadline: self.deadline,
            id: self.id.clone(),
        })
    }

    async fn protected(self, scope: Scope, fingerprint: Fingerprint) -> Response {
        let key = echo(&scope.key);
        if let Some(excess) = self.act.idempotency.quotas().excess(&scope.tenant) {
            let claim = self.claim(scope.clone(), fingerprint);
            let (act, id) = (Arc::clone(&self.act), self.id.clone());
            if let Some(problem) = quota::refusal(&act, claim, excess).await {
                let mut response = problem::write_out(&problem, &id);
                response.headers_mut().insert(IDEMPOTENCY_KEY, key);
                return response;
            }
        }
        let mut response = match join::join(&self.act, &scope, fingerprint, self.deadline).await {
            Ok(joined) => {
                let claim = self.claim(scope, fingerprint);
                let held = held::Held::new(&self.act, claim, joined, self.id.clone());
                let id = self.id.clone();
                if let Some(phasing) = self.act.phasing.clone() {
                    apart(id, Box::pin(phased::phased(self, held, phasing))).await
                } else if self.act.terms.single_shot {
                    apart(id, Box::pin(shot::shot(self, held))).await
                } else {
                    apart(id, Box::pin(atomic::atomic(self, held))).await
                }
            }
            Err(told) => {
                self.act.counts.request(told.outcome());
                told.into_response(self.act.idempotency.settings().profile, &self.id)
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
            retention: self.act.terms.retention,
            on_expired: self.act.terms.on_expired,
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
        asked::tenant(&self.act, &self.parts).ok().cloned()
    }

    /// Returns the end of the wait for the first request, for a duplicate that arrived at
    /// `arrived`.
    fn wait_end(&self, arrived: Instant) -> Instant {
        let end = until(arrived, self.act.idempotency.settings().wait);
        self.deadline.map_or(end, |deadline| deadline.min(end))
    }

    /// Returns the deadline of the handler.
    fn end(&self) -> Instant {
        let end = until(Instant::now(), self.act.idempotency.settings().handler_max);
        self.deadline.map_or(end, |deadline| deadline.min(end))
    }
}

/// Looks the request up in the replay cache, without allocating memory.
///
/// Returns `None` if the cached response has another fingerprint; `join` handles the mismatch.
async fn cached<K: Keys>(act: &Act<K>, asked: &Asked<'_>, key: &str) -> Option<Arc<Stored>> {
    let scope = ScopeRef {
        tenant: asked.tenant,
        operation: &act.operation,
        key,
    };
    let stored = act.idempotency.remembered(&scope).await?;
    (stored.fingerprint == asked.fingerprint).then_some(stored)
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

fn request_id<K: Keys>(act: &Act<K>, parts: &Parts) -> RequestId {
    let placed = parts.extensions.get::<RequestId>().cloned();
    placed.unwrap_or_else(|| RequestId::mint(&act.idempotency.settings().random))
}
