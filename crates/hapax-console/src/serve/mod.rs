//! A listener for HTTP/1.1 that nobody can exhaust: for a console, and for whatever is served
//! beside it.
//!
//! Connections are bounded in number, and a client in time: over a request's head, over its body,
//! and over reading the answer. An idle connection stays no longer than a head may take. While all
//! connections are taken, a further client takes the place of the connection whose client has been
//! waited for longest, if that is a second or more, so that half requests do not keep whole ones
//! out. Told to stop, it accepts nothing more, lets every request in flight finish, and returns
//! when the last connection is closed or time is up.

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

/// How long to wait when the system has no sockets left.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// What a client may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// Connections at a time: each is a descriptor.
    pub connections: usize,
    /// How long a client may take over a request's head, and an idle connection stays.
    pub head: Duration,
    /// How long a client may take over a request's body.
    pub body: Duration,
    /// How long a write may wait for a client that does not read.
    pub write: Duration,
    /// How long requests in flight may take once the listener stops.
    pub finish: Duration,
}

impl Bounds {
    /// The bounds of one listener that may take a `share`-th of the process's `descriptors`.
    ///
    /// The rest is for what the process is there for: its database, its deliveries, its files.
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

/// How many descriptors this process may have open, by its system; a low number where that does
/// not say.
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

/// Serves `service` on `listener` until `stop` says so; a service that fails closes the connection.
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
            "gave up on connections that did not finish"
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
    // Answers are small and wait for nothing; Nagle would only delay them.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(service);
    let service = service_fn(move |request: Request<Incoming>| {
        // The request may have come after its connection's place was given to another client.
        let is_kept = place.requested();
        let (parts, body) = request.into_parts();
        let body = body::bounded(&parts.headers, body, bounds.body, Arc::clone(&place));
        let request = Request::from_parts(parts, body);
        let answering = is_kept.then(|| hyper::service::Service::call(&service, request));
        let place = Arc::clone(&place);
        async move {
            let Some(answering) = answering else {
                return Err(Unanswered(
                    "another connection was given its place".to_owned(),
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
        .serve_connection(TokioIo::new(Written::within(stream, bounds.write)), service);
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

/// Why a connection is closed in place of an answer.
#[derive(Debug)]
struct Unanswered(String);

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Unanswered {}

/// Waits until everybody has to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Who would say so is gone only when the process ends: that is a reason to stop, too.
    let _said = stop.wait_for(|stop| *stop).await;
}

fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}
