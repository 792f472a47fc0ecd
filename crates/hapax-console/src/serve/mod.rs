//! HTTP/1.1 listener with limits, for the console and for other routers of the same process.
//!
//! The number of connections is limited, and so is the time that a client may take for the head of
//! a request, for its body, and for reading the response. An idle connection is kept no longer than
//! a head may take. If all connections are in use, a new client replaces the connection whose
//! client is the most overdue: a tenth of a second for the head of a first request, half a second
//! for anything else. So incomplete requests do not keep complete ones out. A first head that is
//! overdue is given a fortieth of a second more, in which a process that lags reads a head that has
//! arrived. After a request to stop, the listener accepts no more connections, lets every request in
//! flight finish, and returns when the last connection is closed or the time limit has passed.

mod body;
mod place;
mod stream;

use std::{error::Error, fmt, io, sync::Arc, time::Duration};

use axum::body::Body;
use hapax::limits::{
    LISTENER_BODY, LISTENER_CONNECTIONS, LISTENER_DESCRIPTORS, LISTENER_FINISH, LISTENER_HEAD,
    LISTENER_READ_AHEAD, LISTENER_WRITE,
};
use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tower_service::Service;

use place::{Place, Places};
use stream::Written;

/// The wait if the system has no free descriptors.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// The limits of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// Maximum number of connections. Each needs a descriptor.
    pub connections: usize,
    /// How long a client may take for the head of a request, and how long an idle connection is
    /// kept.
    pub head: Duration,
    /// How long a client may take for the body of a request.
    pub body: Duration,
    /// How long a write may wait for a client that does not read.
    pub write: Duration,
    /// How long requests in flight may take after the listener was asked to stop.
    pub finish: Duration,
}

impl Bounds {
    /// The limits of a listener that may use a `share`-th of the process's `descriptors`.
    ///
    /// The rest is for the main purpose of the process: its database, its deliveries, its files.
    pub fn sharing(descriptors: usize, share: usize) -> Self {
        let connections = descriptors / share.max(1);
        Self {
            connections: connections.clamp(1, LISTENER_CONNECTIONS),
            head: LISTENER_HEAD,
            body: LISTENER_BODY,
            write: LISTENER_WRITE,
            finish: LISTENER_FINISH,
        }
    }
}

/// The maximum number of open descriptors of this process; a low number if the system does not say.
pub fn descriptors() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let mut lines = limits.lines();
    let soft = lines.find_map(|line| line.strip_prefix("Max open files"));
    let soft = soft.and_then(|line| line.split_whitespace().next());
    match soft {
        Some("unlimited") => usize::MAX,
        Some(number) => number.parse().unwrap_or(LISTENER_DESCRIPTORS),
        None => LISTENER_DESCRIPTORS,
    }
}

/// Serves `service` on `listener` until `stop` is true. If the service fails, the connection is
/// closed.
pub async fn serve<S>(
    listener: TcpListener,
    service: S,
    bounds: Bounds,
    mut stop: watch::Receiver<bool>,
) where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: fmt::Display,
    S::Future: Send + 'static,
{
    let mut places = Places::new(bounds.connections);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = stopped(&mut stop) => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) if is_the_clients(&error) => continue,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(EXHAUSTED).await;
                continue;
            }
        };
        let permit = tokio::select! {
            () = stopped(&mut stop) => break,
            permit = places.free() => permit,
        };
        let place = Place::new();
        let taken = Arc::clone(&place);
        let (service, stop) = (service.clone(), stop.clone());
        let task = connections.spawn(async move {
            connection(stream, service, bounds, taken, stop).await;
            drop(permit);
        });
        places.note(place, task);
    }
    drop(listener);
    let closed = timeout(bounds.finish, async {
        while connections.join_next().await.is_some() {}
    });
    if closed.await.is_err() {
        tracing::warn!(
            open = connections.len(),
            "connections that did not end in time were closed"
        );
    }
}

async fn connection<S>(
    stream: TcpStream,
    service: S,
    bounds: Bounds,
    place: Arc<Place>,
    mut stop: watch::Receiver<bool>,
) where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: fmt::Display,
    S::Future: Send + 'static,
{
    // Responses are small and should be sent at once. Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    let stream = Written::within(stream, Arc::clone(&place), bounds.write);
    let service = TowerToHyperService::new(service);
    let service = service_fn(move |request: Request<Incoming>| {
        // The request may have arrived after its connection's place was given to another client.
        let is_kept = place.requested();
        let (parts, body) = request.into_parts();
        let body = body::bounded(&parts.headers, body, bounds.body, Arc::clone(&place));
        let request = Request::from_parts(parts, body);
        let answering = is_kept.then(|| hyper::service::Service::call(&service, request));
        let place = Arc::clone(&place);
        async move {
            let Some(answering) = answering else {
                return Err(Unanswered(
                    "its place was given to another connection".to_owned(),
                ));
            };
            let response = answering.await;
            let response = response.map_err(|error| Unanswered(error.to_string()))?;
            Ok(response.map(|body| body::responding(body, place)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_buf_size(LISTENER_READ_AHEAD)
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

/// Why a connection is closed without a response.
#[derive(Debug)]
struct Unanswered(String);

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Unanswered {}

/// Waits for the signal to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // If the sender is gone, the process is ending, which is a reason to stop as well.
    let _said = stop.wait_for(|stop| *stop).await;
}

fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}
