//! The service under a layer, without its type.

use std::{convert::Infallible, fmt, future::poll_fn, sync::Arc};

use axum::{extract::Request, response::Response};
use futures_util::future::BoxFuture;
use tower_service::Service;

/// The route or handler that a layer wraps. Clones share it.
///
/// Its type is erased, so that the code of a protected request is compiled once for each store, and
/// not again for each handler.
#[derive(Clone)]
pub(crate) struct Inner(Arc<dyn Erased>);

impl Inner {
    pub(crate) fn new<S>(service: S) -> Self
    where
        S: Service<Request, Response = Response, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        Self(Arc::new(service))
    }

    /// Calls a copy of the service, as soon as that copy is ready.
    pub(crate) fn call(&self, request: Request) -> BoxFuture<'static, Response> {
        self.0.call_copy(request)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inner")
    }
}

trait Erased: Send + Sync {
    fn call_copy(&self, request: Request) -> BoxFuture<'static, Response>;
}

impl<S> Erased for S
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    fn call_copy(&self, request: Request) -> BoxFuture<'static, Response> {
        let mut service = self.clone();
        Box::pin(async move {
            let Ok(()) = poll_fn(|context| service.poll_ready(context)).await;
            let Ok(response) = service.call(request).await;
            response
        })
    }
}
