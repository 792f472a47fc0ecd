//! Tower service of an operation, which applies the idempotency contract to its protected methods.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{extract::Request, response::Response};
use futures_util::{FutureExt as _, TryFutureExt as _};
use hapax::{store::Keys, trace::TracePosition};
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

use super::{OperationLayer, ProtectedOperations};
use crate::{
    request::{self, Inner},
    trace,
};

impl<K: Keys, S> Layer<S> for OperationLayer<K>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    type Service = Protected<K>;

    fn layer(&self, inner: S) -> Protected<K> {
        let (inner, operations) = (Inner::new(inner), self.operations());
        Protected { inner, operations }
    }
}

/// A service under the idempotency contract.
#[derive(Clone)]
pub struct Protected<K: Keys> {
    /// Shared: axum copies its services several times for each request, and a copy of a route copies
    /// the routes within. A replay needs none of these copies.
    inner: Inner,
    operations: ProtectedOperations<K>,
}

impl<K: Keys> Service<Request> for Protected<K> {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    /// Is always ready. A request waits until its own copy of the inner service is.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let operation = self
            .operations
            .iter()
            .find(|(method, _)| method == request.method());
        let Some((_, operation)) = operation else {
            return Box::pin(self.inner.call(request).map(Ok));
        };
        let operation = Arc::clone(operation);
        let (mut parts, body) = request.into_parts();
        let traces = &operation.idempotency.settings().traces;
        let place = if traces.is_on() {
            let place = trace::place(traces, &parts);
            parts.extensions.insert(place);
            place
        } else {
            TracePosition::default()
        };
        let span = trace::request_span(operation.name.as_str(), &parts, &place);
        let inner = self.inner.clone();
        let context = request::handle(operation, inner, Request::from_parts(parts, body));
        if span.is_disabled() {
            return Box::pin(context);
        }
        let outcome = span.clone();
        let context = context.map_ok(move |response| {
            trace::answered(&outcome, &response);
            response
        });
        Box::pin(context.instrument(span))
    }
}

impl<K: Keys> fmt::Debug for Protected<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protected")
    }
}
