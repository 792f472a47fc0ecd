//! Completer: resumes phased requests whose owner died and whose client does not retry.
//!
//! After the lease has expired, the completer first waits for the client. Then it sends the stored
//! request through the service, after the authentication layer: the tenant is that of the key. A
//! request that fails again is retried with increasing intervals. A request that could not be
//! stored (an upload) is left to its client.

use std::{
    convert::Infallible,
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{extract::Request, response::Response};
use futures_util::FutureExt as _;
use hapax::{
    limits::{GRACE, RESUMED_KEYS},
    phases::{Lapsed, Ownership, TakenOver},
    store::Phases,
};
use tokio::{task::JoinSet, time::sleep};
use tower_service::Service;

use super::kept::decode;
use crate::idempotency::Idempotency;

/// The shortest and the longest poll interval.
const LOOKS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Resumes requests whose owner has died.
pub struct Completer<K: Phases, S> {
    idempotency: Idempotency<K>,
    service: S,
    grace: Duration,
}

impl<K: Phases, S> Completer<K, S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    /// Sends requests through `service`: the routes with their operations, without authentication.
    ///
    /// A request has its tenant in its extensions, its key, and the headers that were kept;
    /// everything else that authentication adds is missing. All operations of `idempotency` that
    /// are phased and belong to a route are resumed.
    pub fn new(idempotency: &Idempotency<K>, service: S) -> Self {
        Self {
            idempotency: idempotency.clone(),
            service,
            grace: GRACE,
        }
    }

    /// Sets how long to wait for the client's own retry after the lease has expired.
    #[must_use]
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Runs until it is dropped. Requests that it has started continue.
    pub async fn run(self) {
        let pause = (self.grace / 4).clamp(LOOKS.0, LOOKS.1);
        let mut running = JoinSet::new();
        loop {
            while running.try_join_next().is_some() {}
            for taken in self.take_over(RESUMED_KEYS - running.len()).await {
                let (idempotency, service) = (self.idempotency.clone(), self.service.clone());
                running.spawn(resume(idempotency, service, taken).boxed());
            }
            sleep(pause).await;
        }
    }

    async fn take_over(&self, limit: usize) -> Vec<TakenOver> {
        let operations = self.idempotency.phased();
        if limit == 0 || operations.is_empty() {
            return Vec::new();
        }
        let lapsed = Lapsed {
            lease: self.idempotency.settings().lease,
            grace: self.grace,
            limit,
        };
        let taken = self.idempotency.store().take_over(&operations, lapsed);
        taken.await.unwrap_or_else(|error| {
            tracing::warn!(
                error = error.error_chain(),
                "cannot read which requests to resume"
            );
            Vec::new()
        })
    }
}

/// Sends one request through the service again.
async fn resume<K, S>(idempotency: Idempotency<K>, mut service: S, taken: TakenOver)
where
    K: Phases,
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let TakenOver { ownership, request } = taken;
    let scope = &ownership.scope;
    let operation = scope.operation.as_str().to_owned();
    let handover = Handover::new(ownership.clone());
    let status = match decode(request, scope) {
        None => None,
        Some(mut request) => {
            request.extensions_mut().insert(scope.tenant.clone());
            request.extensions_mut().insert(handover.clone());
            let Ok(()) = poll_fn(|context| service.poll_ready(context)).await;
            let Ok(response) = service.call(request).await;
            Some(response.status().as_u16())
        }
    };
    // If the key is still here, the route no longer exists, or refused the request before its
    // claim.
    let Some(ownership) = handover.take() else {
        tracing::info!(operation, status, "resumed a request whose owner died");
        return;
    };
    tracing::warn!(operation, status, "a stored request could not be resumed");
    if let Err(error) = idempotency.store().give_back(&ownership).await {
        tracing::warn!(
            error = error.error_chain(),
            "cannot release the lease of a key"
        );
    }
}

impl<K: Phases, S> fmt::Debug for Completer<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completer")
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}

/// A key that a completer has taken over, passed to the layer.
#[derive(Clone)]
pub(crate) struct Handover(Arc<Mutex<Option<Ownership>>>);

impl Handover {
    fn new(ownership: Ownership) -> Self {
        Self(Arc::new(Mutex::new(Some(ownership))))
    }

    /// Takes the key. Only the first call receives it.
    pub(crate) fn take(&self) -> Option<Ownership> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
