//! The tower side: a service that sends protected methods through the contract.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{extract::Request, response::Response};
use hapax::store::Keys;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

use super::{Acts, OperationLayer};
use crate::visit;

impl<K: Keys, S> Layer<S> for OperationLayer<K> {
    type Service = Protected<K, S>;

    fn layer(&self, inner: S) -> Protected<K, S> {
        let acts = self.acts();
        Protected { inner, acts }
    }
}

/// A service under the contract.
pub struct Protected<K: Keys, S> {
    inner: S,
    acts: Acts<K>,
}

impl<K: Keys, S> Service<Request> for Protected<K, S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let act = self
            .acts
            .iter()
            .find(|(method, _)| method == request.method());
        let Some((_, act)) = act else {
            return Box::pin(self.inner.call(request));
        };
        let span = tracing::debug_span!(
            "idempotency",
            operation = act.operation.as_str(),
            idempotency.key_hash = tracing::field::Empty,
            idempotency.outcome = tracing::field::Empty,
        );
        // The service that is ready is the one to call; the clone takes its place.
        let ready = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, ready);
        let visit = visit::answer(Arc::clone(act), inner, request);
        if span.is_disabled() {
            Box::pin(visit)
        } else {
            Box::pin(visit.instrument(span))
        }
    }
}

impl<K: Keys, S: Clone> Clone for Protected<K, S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            acts: Arc::clone(&self.acts),
        }
    }
}

impl<K: Keys, S> fmt::Debug for Protected<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protected")
    }
}
