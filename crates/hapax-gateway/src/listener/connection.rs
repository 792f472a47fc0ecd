//! One connection of a client: its protocol, its requests, and the rest between them.
//!
//! The gateway chooses the protocol itself: by ALPN, or else by the first bytes. hyper's buffers and
//! state cost about 20 KiB, and most connections of clients are idle. So a connection of HTTP/1.1 is
//! taken back from hyper when it has been at rest for a moment, and given to it again with the next
//! byte. What is taken back is at the boundary between two requests, which the [scanner](Checked) of
//! its bytes has found, and has nothing that was read and not handled.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use hapax::store::Phases;
use http::{Request, Response, StatusCode};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::{Service, service_fn},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    sync::watch,
    time::{Instant, Sleep, sleep_until, timeout, timeout_at},
};

use super::{
    HEAD,
    first::{Begun, First},
    stopped,
};
use crate::{
    gateway::Gateway,
    holding::Holding,
    peer::Peer,
    wire::{Activity, Checked, InService},
};

/// Maximum size of the head of a request of HTTP/1.1, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of the headers of a request of HTTP/2, in bytes.
const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;
/// Maximum number of requests in flight on a connection of HTTP/2.
const STREAMS_MAX: u32 = 200;
/// The interval at which an idle connection of HTTP/2 is checked.
const PING: Duration = Duration::from_secs(20);
/// How long a connection of HTTP/1.1 is at rest before its buffers are freed.
const REST: Duration = Duration::from_millis(250);
/// How long the end of an idle connection may take, such as the last message of TLS.
const CLOSE: Duration = Duration::from_secs(1);

/// The body of a response. Its request is in flight until hyper has dropped it.
type InServiceBody = Holding<InService>;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// The protocol that client and gateway have agreed on.
    pub(super) fn of_alpn(name: &[u8]) -> Option<Self> {
        match name {
            b"h2" => Some(Self::Http2),
            b"http/1.1" => Some(Self::Http1),
            _ => None,
        }
    }
}

/// The client of a connection.
pub(super) struct Client<K: Phases> {
    pub(super) gateway: Gateway<K>,
    pub(super) peer: Arc<Peer>,
    pub(super) activity: Arc<Activity>,
}

impl<K: Phases> Client<K> {
    /// Serves the requests of a connection until it ends, or until the gateway stops.
    pub(super) async fn serve<S>(
        self,
        mut stream: Checked<S>,
        mut protocol: Option<Protocol>,
        mut stop: watch::Receiver<bool>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut end = Instant::now() + HEAD;
        loop {
            let requests = self.activity.begun();
            let reading = timeout_at(end, First::read(&mut stream, protocol));
            let read = tokio::select! {
                read = reading => read.ok().and_then(Result::ok),
                () = stopped(&mut stop) => None,
            };
            let Some((first, found)) = read else {
                let _closed = timeout(CLOSE, stream.shutdown()).await;
                return;
            };
            protocol = Some(found);
            let begun = Begun::new(first, stream);
            let service = service(&self);
            let rested = match found {
                Protocol::Http1 => {
                    Box::pin(serve_http1(begun, service, &self.activity, &mut stop)).await
                }
                Protocol::Http2 => {
                    Box::pin(serve_http2(begun, service, &mut stop)).await;
                    None
                }
            };
            let Some(rested) = rested else { return };
            stream = rested;
            // Empty lines are not a request, and do not prolong the time for one.
            if self.activity.begun() != requests {
                end = Instant::now() + HEAD;
            }
        }
    }
}

/// The service that passes the requests of a connection to the gateway.
fn service<K: Phases>(
    client: &Client<K>,
) -> impl Service<
    Request<Incoming>,
    Response = Response<InServiceBody>,
    Error = Infallible,
    Future: Send + 'static,
> + Send
+ use<K> {
    let (gateway, peer) = (client.gateway.clone(), Arc::clone(&client.peer));
    let activity = Arc::clone(&client.activity);
    service_fn(move |request: Request<Incoming>| {
        let (gateway, peer) = (gateway.clone(), Arc::clone(&peer));
        let activity = Arc::clone(&activity);
        async move {
            let in_service = activity.begin();
            let response = gateway.handle(request.map(Body::new), &peer).await;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                activity.upgraded();
            }
            Ok::<_, Infallible>(response.map(|body| InServiceBody::new(body, in_service)))
        }
    })
}

/// Serves requests of HTTP/1.1. Returns the connection when it has been at rest for a moment, and
/// nothing if it has ended.
async fn serve_http1<I, S>(
    stream: Begun<Checked<I>>,
    service: S,
    activity: &Arc<Activity>,
    stop: &mut watch::Receiver<bool>,
) -> Option<Checked<I>>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<InServiceBody>, Error = Infallible>,
{
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = connection.with_upgrades();
    let mut rest = Rest::new(Arc::clone(activity));
    let until_rest = poll_fn(|context| match Pin::new(&mut connection).poll(context) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending => rest.poll(context).map(|()| None),
    });
    let ended = tokio::select! {
        ended = until_rest => ended,
        () = stopped(stop) => {
            Pin::new(&mut connection).graceful_shutdown();
            Some((&mut connection).await)
        }
    };
    if let Some(ended) = ended {
        log(ended);
        return None;
    }
    let parts = connection.into_parts()?;
    // A client may send empty lines before a request (RFC 9112, section 2.2). Nothing else can be left.
    let is_line_break = |byte: &u8| matches!(*byte, b'\r' | b'\n');
    if !parts.read_buf.iter().all(is_line_break) {
        return None;
    }
    parts.io.into_inner().into_inner()
}

/// Serves requests of HTTP/2 until the connection ends.
async fn serve_http2<I, S>(stream: Begun<Checked<I>>, service: S, stop: &mut watch::Receiver<bool>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<InServiceBody>, Error = Infallible>,
    S::Future: Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .keep_alive_interval(PING);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    log(ended);
}

fn log(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}

/// Finds out whether a connection has been at rest for a moment.
struct Rest {
    activity: Arc<Activity>,
    /// Since when it is at rest, and how many requests had begun then.
    since: Option<(usize, Instant)>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Rest {
    fn new(activity: Arc<Activity>) -> Self {
        Self {
            activity,
            since: None,
            timer: None,
        }
    }

    /// Call it after the connection was polled. The timer is not set again for every request: if it
    /// fires too early, it is set to the rest of the time.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.activity.is_at_rest() {
            self.since = None;
            return Poll::Pending;
        }
        let begun = self.activity.begun();
        let since = match self.since {
            Some((before, since)) if before == begun => since,
            _ => Instant::now(),
        };
        self.since = Some((begun, since));
        let end = since + REST;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
        while timer.as_mut().poll(context).is_ready() {
            if Instant::now() >= end {
                return Poll::Ready(());
            }
            timer.as_mut().reset(end);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn a_connection_at_rest_is_taken_back_and_continues_with_the_next_request() {
        let (mut client, server) = duplex(4096);
        let activity = Arc::<Activity>::default();
        let (_running, mut stop) = watch::channel(false);
        let mut stream = Checked::new(server, Arc::clone(&activity));
        for body in ["one", "two"] {
            // Empty lines may precede a request.
            let head = "\r\nPOST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n";
            let request = format!("{head}{body}");
            client.write_all(request.as_bytes()).await.unwrap();
            stream = serve(stream, &activity, &mut stop).await.unwrap();
            let mut response = vec![0; 4096];
            let length = client.read(&mut response).await.unwrap();
            let response = String::from_utf8_lossy(&response[..length]).into_owned();
            assert!(response.starts_with("HTTP/1.1 200"), "{response}");
            assert!(response.ends_with(body), "{response}");
        }
        assert_eq!(activity.begun(), 2);
        // After empty lines alone, too.
        client.write_all(b"\r\n").await.unwrap();
        assert!(serve(stream, &activity, &mut stop).await.is_some());
        assert_eq!(activity.begun(), 2);
    }

    #[tokio::test]
    async fn a_connection_that_its_client_closes_is_not_taken_back() {
        let (mut client, server) = duplex(4096);
        let activity = Arc::<Activity>::default();
        let (_running, mut stop) = watch::channel(false);
        let stream = Checked::new(server, Arc::clone(&activity));
        let request =
            b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 1\r\n\r\n1";
        client.write_all(request).await.unwrap();
        assert!(serve(stream, &activity, &mut stop).await.is_none());
    }

    #[test]
    fn a_connection_with_a_request_in_flight_is_not_at_rest() {
        let activity = Arc::<Activity>::default();
        let in_service = activity.begin();
        assert!(!activity.is_at_rest());
        drop(in_service);
        // Nothing was read yet.
        assert!(!activity.is_at_rest());
    }

    async fn serve<I>(
        mut stream: Checked<I>,
        activity: &Arc<Activity>,
        stop: &mut watch::Receiver<bool>,
    ) -> Option<Checked<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let known = Some(Protocol::Http1);
        let (first, _) = First::read(&mut stream, known).await.unwrap();
        let shared = Arc::clone(activity);
        let echo = service_fn(move |request: Request<Incoming>| {
            let held = InServiceBody::new(Body::new(request.into_body()), shared.begin());
            async move { Ok::<_, Infallible>(Response::new(held)) }
        });
        serve_http1(Begun::new(first, stream), echo, activity, stop).await
    }
}
