//! One instance of an upstream: its idle connections, its requests in flight, and its health.
//!
//! An instance to which no connection can be established is avoided for a while, which doubles with
//! every failure. It is used again after that time, or at once if a health check succeeds.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use hapax::sink::BoxError;
use http::{
    HeaderValue, Request, Response, Uri, Version,
    header::{CONNECTION, TE},
    uri::{Authority, PathAndQuery, Scheme},
};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1},
};
use tokio::time::Instant;

use super::{
    connect::Dial,
    http2::{Pool, Reserved, Stream, is_refused, on_stream},
};
use crate::{config, metrics};

/// The most doublings of the time for which an instance is avoided.
const DOUBLINGS_MAX: u32 = 16;

/// An instance.
pub(crate) struct Instance {
    upstream: String,
    name: Arc<str>,
    authority: String,
    dial: Dial,
    idle_max: Duration,
    idle_count_max: usize,
    eject: (Duration, Duration),
    in_flight: Arc<AtomicUsize>,
    health: Arc<Mutex<Health>>,
    idle: Arc<Idle>,
    /// The connections of HTTP/2.
    http2: Arc<Pool>,
}

/// Idle connections of HTTP/1.1, the one that was used last at the end.
#[derive(Default)]
struct Idle(Mutex<VecDeque<(http1::SendRequest<Body>, Instant)>>);

#[derive(Debug, Default)]
struct Health {
    failures: u32,
    avoided_until: Option<Instant>,
}

/// A connection on which a request can be sent.
pub(super) enum Connection {
    Http1 {
        sender: http1::SendRequest<Body>,
        is_pooled: bool,
    },
    Http2(Reserved),
}

impl Connection {
    /// Whether it was used before, and may have been closed by the instance in the meantime.
    pub(super) fn is_pooled(&self) -> bool {
        match self {
            Self::Http1 { is_pooled, .. } => *is_pooled,
            Self::Http2(reserved) => reserved.is_pooled,
        }
    }
}

/// The result of sending a request.
pub(super) enum Attempt {
    /// The head of the response has arrived. A stream is to be held until the response has ended.
    Answered(Response<Incoming>, Option<Arc<Stream>>),
    /// Nothing of the request was sent; it is returned.
    NotSent(Box<Request<Body>>, BoxError),
    /// The instance has refused the request before it acted on it.
    Refused(BoxError),
    /// The request may have been sent.
    Failed(BoxError),
}

/// The place of a request in flight, for the choice of the instance.
#[derive(Debug)]
pub(super) struct InstanceSlot(Arc<AtomicUsize>);

impl Drop for InstanceSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Instance {
    pub(super) fn new(upstream: &str, url: &str, dial: Dial, settings: &config::Upstream) -> Self {
        let authority = url.split("://").nth(1).unwrap_or(url);
        metrics::instance_up(upstream, url, true);
        Self {
            upstream: upstream.to_owned(),
            name: Arc::from(url),
            authority: authority.trim_end_matches('/').to_owned(),
            dial,
            idle_max: settings.idle.0,
            idle_count_max: settings.concurrency,
            eject: (settings.eject.0, settings.eject_max.0),
            in_flight: Arc::default(),
            health: Arc::default(),
            idle: Arc::default(),
            http2: Arc::default(),
        }
    }

    /// Keeps the requests in flight and the health of the same instance in an earlier configuration, and
    /// its connections if they are made in the same way.
    pub(super) fn continuing(mut self, earlier: &Self, is_same_way: bool) -> Self {
        self.in_flight = Arc::clone(&earlier.in_flight);
        self.health = Arc::clone(&earlier.health);
        if is_same_way {
            self.idle = Arc::clone(&earlier.idle);
            self.http2 = Arc::clone(&earlier.http2);
        }
        let is_well = self.health().failures == 0;
        metrics::instance_up(&self.upstream, &self.name, is_well);
        self
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn slot(&self) -> InstanceSlot {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InstanceSlot(Arc::clone(&self.in_flight))
    }

    /// Whether the instance is not avoided.
    pub(super) fn is_up(&self, now: Instant) -> bool {
        self.health().avoided_until.is_none_or(|until| until <= now)
    }

    /// Records that no connection could be established, or that a health check has failed.
    pub(super) fn failed(&self) {
        let mut health = self.health();
        let (shortest, longest) = self.eject;
        let factor = 2_u32.saturating_pow(health.failures.min(DOUBLINGS_MAX));
        let wait = shortest.saturating_mul(factor).min(longest);
        health.failures = health.failures.saturating_add(1);
        health.avoided_until = Instant::now().checked_add(wait);
        drop(health);
        metrics::instance_up(&self.upstream, &self.name, false);
        tracing::warn!(
            upstream = self.upstream,
            instance = &*self.name,
            "an instance is avoided: connections to it or its health checks fail"
        );
    }

    /// Records that the instance responds.
    pub(super) fn succeeded(&self) {
        let mut health = self.health();
        if health.failures == 0 {
            return;
        }
        *health = Health::default();
        drop(health);
        metrics::instance_up(&self.upstream, &self.name, true);
    }

    /// Returns a connection: one that is open, unless a fresh one is asked for.
    pub(super) async fn connection(&self, is_fresh: bool) -> Result<Connection, BoxError> {
        if self.dial.is_http2() {
            let open = self.dial.connect_http2();
            let reserved = self.http2.reserve(open, is_fresh, self.idle_max).await?;
            return Ok(Connection::Http2(reserved));
        }
        if !is_fresh && let Some(sender) = self.idle.take(self.idle_max) {
            return Ok(Connection::Http1 {
                sender,
                is_pooled: true,
            });
        }
        Ok(Connection::Http1 {
            sender: self.dial.connect_http1().await?,
            is_pooled: false,
        })
    }

    /// Returns a connection for a health check that is made at this interval: one that is open, even if it is
    /// idle since the check before, unless the instance has failed.
    pub(super) async fn open_connection(&self, every: Duration) -> Option<Connection> {
        if self.health().failures > 0 {
            return None;
        }
        if self.dial.is_http2() {
            return self.connection(false).await.ok();
        }
        let sender = self.idle.take(self.idle_max.max(every * 2))?;
        Some(Connection::Http1 {
            sender,
            is_pooled: true,
        })
    }

    /// Sends a request, and waits for the head of its response.
    pub(super) async fn send(&self, connection: Connection, request: Request<Body>) -> Attempt {
        let answered = match connection {
            Connection::Http1 { mut sender, .. } => {
                if let Err(error) = sender.ready().await {
                    return Attempt::NotSent(Box::new(request), error.into());
                }
                let answered = sender.try_send_request(origin_form(request)).await;
                if answered.is_ok() {
                    self.give_back(sender);
                }
                answered.map(|response| (response, None))
            }
            Connection::Http2(Reserved {
                mut sender, stream, ..
            }) => {
                let request = absolute_form(request, &self.authority, self.dial.is_tls());
                let request = request.map(|body| on_stream(body, &stream));
                let answered = sender.try_send_request(request).await;
                answered.map(|response| (response, Some(stream)))
            }
        };
        match answered {
            Ok((response, stream)) => {
                self.succeeded();
                Attempt::Answered(response, stream)
            }
            Err(error) => attempt(error),
        }
    }

    /// Keeps a connection of HTTP/1.1 for another request, when its response has ended.
    fn give_back(&self, mut sender: http1::SendRequest<Body>) {
        let (idle, idle_max, count_max) =
            (Arc::clone(&self.idle), self.idle_max, self.idle_count_max);
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                idle.keep(sender, idle_max, count_max);
            }
        });
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("name", &self.name)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

impl Idle {
    fn take(&self, idle_max: Duration) -> Option<http1::SendRequest<Body>> {
        let mut idle = self.lock();
        while let Some((sender, since)) = idle.pop_back() {
            if since.elapsed() < idle_max && sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn keep(&self, sender: http1::SendRequest<Body>, idle_max: Duration, count_max: usize) {
        let mut idle = self.lock();
        while idle
            .front()
            .is_some_and(|(it, since)| it.is_closed() || since.elapsed() >= idle_max)
        {
            idle.pop_front();
        }
        if idle.len() < count_max {
            idle.push_back((sender, Instant::now()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(http1::SendRequest<Body>, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hyper hands the request back exactly if it has not begun to write it.
fn attempt(mut error: TrySendError<Request<Body>>) -> Attempt {
    let message = error.take_message();
    let error = error.into_error();
    match message {
        Some(request) => Attempt::NotSent(Box::new(request), error.into()),
        None if is_refused(&error) => Attempt::Refused(error.into()),
        None => Attempt::Failed(error.into()),
    }
}

/// A request in the form of HTTP/1.1. The target is the path, and the host is in its header. `TE` belongs to
/// the connection, so `Connection` lists it (RFC 9110, section 10.1.4).
fn origin_form(mut request: Request<Body>) -> Request<Body> {
    let headers = request.headers_mut();
    let is_listed = headers.get_all(CONNECTION).iter().any(|it| it == "TE");
    if headers.contains_key(TE) && !is_listed {
        headers.append(CONNECTION, HeaderValue::from_static("TE"));
    }
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    *request.version_mut() = Version::HTTP_11;
    request
}

/// The form of the target in HTTP/2: scheme, authority and path.
fn absolute_form(mut request: Request<Body>, authority: &str, is_tls: bool) -> Request<Body> {
    let host = request.headers_mut().remove(http::header::HOST);
    let host = host.and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    let target = request.uri().authority().cloned();
    parts.authority = host.or(target).or_else(|| authority.parse().ok());
    let path = request.uri().path_and_query().cloned();
    parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = Version::HTTP_2;
    request
}
