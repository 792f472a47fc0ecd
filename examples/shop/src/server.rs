//! Serves HTTP/1.1 on a listener until it is told to stop.
//!
//! Connections are bounded in number and a client must send its headers in
//! time. Told to stop, it accepts nothing more, lets every request in flight
//! finish, and returns when the last connection is closed or time is up.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tower::ServiceExt as _;

use crate::body;

/// Connections at a time: each costs a socket and some kilobytes.
const CONNECTIONS_MAX: usize = 1024;
/// Bytes that are read from a connection ahead of whoever takes them, and so of a request's head.
const READ_AHEAD: usize = 64 * 1024;
/// How long a client may take over its headers, and an idle connection stays.
const HEADERS: Duration = Duration::from_secs(30);
/// How long requests in flight may take once the server stops.
const FINISH: Duration = Duration::from_secs(35);
/// How long to wait when the system has no sockets left.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// Put into a response's extensions, closes the connection instead of answering.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered;

/// Told to everybody who has to stop.
pub(crate) type Stop = watch::Receiver<bool>;

/// Waits until everybody has to stop.
pub(crate) async fn stopped(stop: &mut Stop) {
    // Who would say so is gone only when the process ends: that is a reason to stop, too.
    let _said = stop.wait_for(|stop| *stop).await;
}

/// Serves `router` on `listener` until `stop` says so.
pub(crate) async fn serve(listener: TcpListener, router: Router, mut stop: Stop) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let slot = Arc::clone(&slots).acquire_owned();
        let accepted = tokio::select! {
            () = stopped(&mut stop) => break,
            accepted = async { (slot.await, listener.accept().await) } => accepted,
        };
        match accepted {
            (Ok(slot), Ok((stream, _))) => {
                let (router, stop) = (router.clone(), stop.clone());
                connections.spawn(async move {
                    connection(stream, router, stop).await;
                    drop(slot);
                });
            }
            (_, Err(error)) if is_the_clients(&error) => {}
            (_, Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(EXHAUSTED).await;
            }
            (Err(_), _) => break,
        }
    }
    drop(listener);
    let closed = timeout(FINISH, async {
        while connections.join_next().await.is_some() {}
    });
    if closed.await.is_err() {
        tracing::warn!(
            open = connections.len(),
            "gave up on connections that did not finish"
        );
    }
}

async fn connection(stream: TcpStream, router: Router, mut stop: Stop) {
    // Answers are small and wait for nothing; Nagle would only delay them.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| answer(router.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(READ_AHEAD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}

async fn answer(router: Router, request: Request<Incoming>) -> Result<Response<Body>, NoAnswer> {
    let (parts, body) = request.into_parts();
    let body = body::bounded(&parts.headers, body);
    let request = Request::from_parts(parts, body);
    let answered: Result<_, Infallible> = router.oneshot(request).await;
    let response = answered.unwrap_or_else(|never| match never {});
    if response.extensions().get::<Unanswered>().is_some() {
        return Err(NoAnswer);
    }
    Ok(response)
}

#[derive(Debug, thiserror::Error)]
#[error("the answer was lost on purpose")]
struct NoAnswer;

fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}
