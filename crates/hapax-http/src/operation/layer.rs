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
use futures_util::TryFutureExt as _;
use hapax::{store::Keys, trace::Place};
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

use super::{OperationLayer, ProtectedOperations};
use crate::{request, trace};

impl<K: Keys, S> Layer<S> for OperationLayer<K> {
    type Service = Protected<K, S>;

    fn layer(&self, inner: S) -> Protected<K, S> {
        let operations = self.operations();
        Protected { inner, operations }
    }
}

/// A service under the idempotency contract.
#[derive(Clone)]
pub struct Protected<K: Keys, S> {
    inner: S,
    operations: ProtectedOperations<K>,
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
        let operation = self
            .operations
            .iter()
            .find(|(method, _)| method == request.method());
        let Some((_, operation)) = operation else {
            return Box::pin(self.inner.call(request));
        };
        let operation = Arc::clone(operation);
        let (mut parts, body) = request.into_parts();
        let traces = &operation.idempotency.settings().traces;
        let place = if traces.is_on() {
            let place = trace::place(traces, &parts);
            parts.extensions.insert(place);
            place
        } else {
            Place::default()
        };
        let span = trace::request_span(operation.name.as_str(), &parts, &place);
        // The service on which `poll_ready` was called has to be used; the clone takes its place.
        let ready = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, ready);
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

impl<K: Keys, S> fmt::Debug for Protected<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protected")
    }
}
