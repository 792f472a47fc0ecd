//! Handler of a protected request: decides whether it may be sent.
//!
//! A new key is entered with the phase `sent`, and its request is sent: no earlier owner can have sent
//! it. If a key was resumed and has no recovery point, its request was never sent, because `sent` is
//! committed first, and the commit is fenced. If it has one, the request may have been executed, and is
//! not sent again unless the route says how that is safe.

use std::{
    convert::Infallible,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    extract::{FromRequestParts as _, Request},
    response::{IntoResponse as _, Response},
};
use hapax::store::{Keys, Transaction};
use hapax_http::{Phased, header::REQUEST_TIMEOUT};
use http::HeaderValue;
use tower_service::Service;

use super::{
    Target,
    exchange::{Exchange, undecided},
    key,
    mcp::Call,
    response::released,
};
use crate::{config::OnUnknown, metrics, unknown::Unknown};

/// Marks a request that a completer resumes: its client, and the client's credentials, are missing.
#[derive(Clone, Copy)]
pub(crate) struct Unattended;

/// The time that the client has left, for the service. The gateway itself does not stop waiting
/// when the client does, because it would not learn the outcome.
#[derive(Clone)]
pub(crate) struct Budget(pub(crate) HeaderValue);

/// The handler under the layer of a route.
pub(super) struct Forward<K> {
    target: Arc<Target>,
    store: PhantomData<fn() -> K>,
}

impl<K> Forward<K> {
    pub(super) fn new(target: Arc<Target>) -> Self {
        Self {
            target,
            store: PhantomData,
        }
    }
}

impl<K> Clone for Forward<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.target))
    }
}

impl<K: Keys> Service<Request> for Forward<K> {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let target = Arc::clone(&self.target);
        Box::pin(async move { Ok(respond::<K::Tx>(target, request).await) })
    }
}

async fn respond<T: Transaction>(target: Arc<Target>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let phased = match Phased::<T>::from_request_parts(&mut parts, &()).await {
        Ok(phased) => phased,
        Err(problem) => return problem.into_response(),
    };
    let is_unattended = parts.extensions.remove::<Unattended>().is_some();
    if let Some(Budget(budget)) = parts.extensions.remove() {
        parts.headers.insert(REQUEST_TIMEOUT, budget);
    }
    let body = match parts.extensions.get::<Arc<Call>>().cloned() {
        Some(call) => call.restore(&mut parts.headers),
        None => body,
    };
    let point = phased.recovery_point();
    let is_known = point.is_some();
    let record: Option<Unknown> = point.and_then(|point| point.parse().ok());
    if !phased.is_resumed() {
        let request = Request::from_parts(parts, body);
        let exchange = Exchange::entered(target, phased, request, record);
        return Box::pin(exchange.send()).await;
    }
    if !is_known {
        if is_unattended {
            // The key is free for the client's own retry.
            return released("nothing was sent");
        }
        let request = Request::from_parts(parts, body);
        let exchange = Exchange::resumed(target, phased, request, false);
        return Box::pin(exchange.send()).await;
    }
    if let Some(form) = record.as_ref().and_then(|record| record.key_form) {
        key::rewrite(&mut parts.headers, form);
    }
    let request = Request::from_parts(parts, body);
    let exchange = |target| Exchange::resumed(target, phased, request, true);
    let unknown = target.settings.unknown;
    match unknown {
        OnUnknown::Forward if !is_unattended => {
            metrics::resumed(&target.route, "forward");
            Box::pin(exchange(target).send()).await
        }
        OnUnknown::LookUp => Box::pin(exchange(target).look_up(record, is_unattended)).await,
        OnUnknown::Conflict | OnUnknown::Forward => {
            metrics::resumed(&target.route, "conflict");
            undecided(record.as_ref())
        }
    }
}
