//! Serves HTTP/1.1, and can close a connection in place of an answer.

use std::{convert::Infallible, fmt, future::Future, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    response::Response,
};
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 512;
/// How long a client may take over its headers, and an idle connection stays.
const HEADERS: Duration = Duration::from_secs(30);
/// How long a client may take over its body.
const BODY: Duration = Duration::from_secs(30);
/// Bytes of a body: the largest is an order's.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// How long to wait when the system has no sockets left.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// Put into a response's extensions, closes the connection instead of answering.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered;

/// Serves a provider on `listener` until `stop` ends; open connections are closed then.
///
/// What was applied is in the ledger whatever becomes of its answer.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            while connections.try_join_next().is_some() {}
            let slot = Arc::clone(&slots).acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    let router = router.clone();
                    connections.spawn(async move {
                        connection(stream, router).await;
                        drop(slot);
                    });
                }
                Err(_) => sleep(EXHAUSTED).await,
            }
        }
    };
    tokio::select! {
        () = stop => {}
        () = accepting => {}
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        async move {
            let request = whole(request).await.ok_or(NoAnswer)?;
            let answering = hyper::service::Service::call(&router, request);
            answering.await.map_or_else(never, answered)
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // A connection that ends early was cut by its client, or by us on purpose.
    let _ended = serving.await;
}

/// A request with its whole body; nothing when that does not come in time, or is too long.
async fn whole(request: Request<Incoming>) -> Option<Request<Body>> {
    let (parts, body) = request.into_parts();
    let reading = to_bytes(Body::new(body), BODY_BYTES_MAX);
    let body = timeout(BODY, reading).await.ok()?.ok()?;
    Some(Request::from_parts(parts, Body::from(body)))
}

fn never(never: Infallible) -> Result<Response<Body>, NoAnswer> {
    match never {}
}

fn answered(response: Response<Body>) -> Result<Response<Body>, NoAnswer> {
    if response.extensions().get::<Unanswered>().is_some() {
        return Err(NoAnswer);
    }
    Ok(response)
}

/// An answer that is lost on purpose.
#[derive(Debug)]
struct NoAnswer;

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer was lost on purpose")
    }
}

impl std::error::Error for NoAnswer {}
