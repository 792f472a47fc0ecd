//! Requests that a completer resumes, because their client does not retry.
//!
//! Only routes that look up outcomes are resumed. Such a request is not sent to the service again:
//! the gateway stores no credentials. It asks the service what has happened, and then stores the
//! response or releases the key.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    extract::Request,
    response::{IntoResponse as _, Response},
};
use hapax::store::Phases;
use hapax_http::{Completer, Idempotency, Problem};
use http::{header::HOST, uri::Authority};
use tower_service::Service;

use crate::{entry::Entry, protected::Unattended, routes::RouteTable};

/// The protected routes, without authentication.
pub(crate) struct Resume<K: Phases> {
    routes: Arc<RouteTable<Arc<Entry<K>>>>,
}

impl<K: Phases> Resume<K> {
    /// The completer of these routes.
    pub(crate) fn completer(
        idempotency: &Idempotency<K>,
        routes: Arc<RouteTable<Arc<Entry<K>>>>,
    ) -> Completer<K, Self> {
        Completer::new(idempotency, Self { routes })
    }
}

impl<K: Phases> Clone for Resume<K> {
    fn clone(&self) -> Self {
        Self {
            routes: Arc::clone(&self.routes),
        }
    }
}

impl<K: Phases> Service<Request> for Resume<K> {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let host = request.headers().get(HOST);
        let host = host.and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
        let host = host.as_ref().map_or("", Authority::host);
        let found = self
            .routes
            .find(host, request.uri().path(), request.method());
        let Some(entry) = found else {
            return Box::pin(async { Ok(Problem::not_found().into_response()) });
        };
        let mut protected = entry.protected.clone();
        request.extensions_mut().insert(Unattended);
        Box::pin(async move { protected.call(request).await })
    }
}
