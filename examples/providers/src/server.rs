//! An HTTP/1.1 server that can close a connection instead of sending a response.

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

/// The most open connections.
const CONNECTIONS_MAX: usize = 512;
/// How long a client may take to send its headers, and how long an idle connection stays open.
const HEADERS: Duration = Duration::from_secs(30);
/// How long a client may take to send its body.
const BODY: Duration = Duration::from_secs(30);
/// The largest request body, in bytes.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// How long to wait after `accept` fails because the process has no file descriptors left.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// An extension of a response; the server then closes the connection instead of sending it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered;

/// Serves a provider on `listener` until `stop` completes, and then closes all connections.
///
/// Operations that were applied are in the ledger even if their response is not sent.
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
            let request = whole(request).await.ok_or(NoResponse)?;
            let answering = hyper::service::Service::call(&router, request);
            answering.await.map_or_else(never, answered)
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // A connection that ends early was closed by its client, or by this server on purpose.
    let _ended = serving.await;
}

/// Reads the whole body of a request; `None` if it does not arrive in time or is too long.
async fn whole(request: Request<Incoming>) -> Option<Request<Body>> {
    let (parts, body) = request.into_parts();
    let reading = to_bytes(Body::new(body), BODY_BYTES_MAX);
    let body = timeout(BODY, reading).await.ok()?.ok()?;
    Some(Request::from_parts(parts, Body::from(body)))
}

fn never(never: Infallible) -> Result<Response<Body>, NoResponse> {
    match never {}
}

fn answered(response: Response<Body>) -> Result<Response<Body>, NoResponse> {
    if response.extensions().get::<Unanswered>().is_some() {
        return Err(NoResponse);
    }
    Ok(response)
}

/// The error of a response that is withheld, which makes hyper close the connection.
#[derive(Debug)]
struct NoResponse;

impl fmt::Display for NoResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the response was withheld on purpose")
    }
}

impl std::error::Error for NoResponse {}
