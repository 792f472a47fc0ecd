//! HTTP receiver that records requests and sends configured responses.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt,
    future::poll_fn,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

use crate::wait;

/// A chunk of a long body.
const PIECE: Bytes = Bytes::from_static(&[b'.'; 1024]);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A listener on loopback that records every request.
///
/// Dropping it closes the listener and all connections.
pub struct HttpReceiver {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
    serving: JoinHandle<()>,
}

/// A received request.
#[derive(Clone, Debug)]
pub struct Received {
    /// The method.
    pub method: Method,
    /// The path with the query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The version of HTTP.
    pub version: Version,
    /// The complete body.
    pub body: Bytes,
    /// The status of the response; `None` if the connection ends instead.
    pub answered: Option<u16>,
}

impl Received {
    /// The first value of a header, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// The response to a request.
#[derive(Clone, Debug)]
pub struct HttpReply {
    status: u16,
    headers: Vec<(String, String)>,
    body: ReplyBody,
    delay: Duration,
}

#[derive(Clone, Debug)]
enum ReplyBody {
    Whole(Bytes),
    Endless(Duration),
    Large(u64),
    Raw(Bytes, End),
}

/// How a connection ends after bytes that need not be HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is closed.
    Close,
    /// It is reset.
    Reset,
    /// Nothing more is sent until the sender closes it.
    Stall,
    /// More and more bytes are sent until the sender closes it.
    Flood,
}

impl HttpReply {
    /// A response with this status and an empty body.
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: ReplyBody::Whole(Bytes::new()),
            delay: Duration::ZERO,
        }
    }

    /// No response: the connection is closed.
    pub fn closed() -> Self {
        Self::raw("", End::Close)
    }

    /// Bytes that need not be HTTP, after which the connection ends in this way.
    pub fn raw(bytes: impl Into<Bytes>, end: End) -> Self {
        Self {
            body: ReplyBody::Raw(bytes.into(), end),
            ..Self::status(500)
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = ReplyBody::Whole(body.into());
        self
    }

    /// Sets a body that never ends, sent in chunks of one kibibyte.
    #[must_use]
    pub fn endless_body(mut self, pause: Duration) -> Self {
        self.body = ReplyBody::Endless(pause);
        self
    }

    /// Sets a body of approximately this size, sent as fast as possible.
    #[must_use]
    pub fn large_body(mut self, bytes: u64) -> Self {
        self.body = ReplyBody::Large(bytes);
        self
    }

    /// Sets a delay before the response.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

type Choose = dyn Fn(&Received) -> HttpReply + Send;

struct Script {
    next: VecDeque<HttpReply>,
    usual: Box<Choose>,
    received: Vec<Received>,
    connections: usize,
}

impl Script {
    /// Records a request and returns the response.
    fn take(&mut self, mut request: Received) -> HttpReply {
        let next = self.next.pop_front();
        let reply = next.unwrap_or_else(|| (self.usual)(&request));
        let is_raw = matches!(reply.body, ReplyBody::Raw(..));
        request.answered = (!is_raw).then_some(reply.status);
        self.received.push(request);
        reply
    }
}

impl HttpReceiver {
    /// Starts a receiver on a free port of 127.0.0.1 that responds with 200 to all requests.
    ///
    /// # Panics
    /// Panics if all ports are in use.
    pub async fn start() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_at(any).await.expect("loopback has a free port")
    }

    /// Starts a receiver at `address`, for example again after an outage.
    ///
    /// # Errors
    /// Fails if the address is in use.
    pub async fn start_at(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let script = Arc::new(Mutex::new(Script {
            next: VecDeque::new(),
            usual: Box::new(|_| HttpReply::status(200)),
            received: Vec::new(),
            connections: 0,
        }));
        let serving = tokio::spawn(serve(listener, Arc::clone(&script)));
        Ok(Self {
            address,
            script,
            serving,
        })
    }

    /// The address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of `path`, which starts with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Adds a response for one of the next requests to the queue.
    pub fn reply_next(&self, reply: HttpReply) {
        lock(&self.script).next.push_back(reply);
    }

    /// Sets the response that is used while the queue is empty.
    pub fn reply(&self, reply: HttpReply) {
        self.reply_with(move |_| reply.clone());
    }

    /// Sets a function that chooses the response while the queue is empty.
    pub fn reply_with(&self, choose: impl Fn(&Received) -> HttpReply + Send + 'static) {
        lock(&self.script).usual = Box::new(choose);
    }

    /// How many connections were opened so far.
    pub fn connections(&self) -> usize {
        lock(&self.script).connections
    }

    /// All requests so far, in order.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.script).received.clone()
    }

    /// Waits until `count` requests have arrived, and returns all requests so far.
    ///
    /// # Panics
    /// Panics if fewer arrive within 10 seconds.
    pub async fn received_at_least(&self, count: usize) -> Vec<Received> {
        let within = Duration::from_secs(30);
        wait::eventually(within, async || lock(&self.script).received.len() >= count).await;
        self.received()
    }
}

impl fmt::Debug for HttpReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("HttpReceiver");
        shown
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for HttpReceiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, script: Arc<Mutex<Script>>) {
    // Dropping the set with this task aborts all connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                connections.spawn(converse(stream, Arc::clone(&script)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, script: Arc<Mutex<Script>>) {
    lock(&script).connections += 1;
    let raw = Mutex::new(None);
    let service = service_fn(|request| Box::pin(answer(request, &script, &raw)));
    let io = TokioIo::new(stream);
    let mut connection = http1::Builder::new().serve_connection(io, service);
    // A client that leaves, and a raw reply, both end the conversation early.
    drop(poll_fn(|context| connection.poll_without_shutdown(context)).await);
    let stream = connection.into_parts().io.into_inner();
    let raw = raw.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((bytes, end)) = raw {
        // The sender may close the connection at any time.
        drop(send_raw(stream, &bytes, end).await);
    }
}

async fn send_raw(mut stream: TcpStream, bytes: &[u8], end: End) -> io::Result<()> {
    stream.write_all(bytes).await?;
    match end {
        End::Close => stream.shutdown().await,
        End::Reset => stream.set_zero_linger(),
        End::Stall => stream.read_to_end(&mut Vec::new()).await.map(drop),
        End::Flood => loop {
            stream.write_all(&PIECE).await?;
        },
    }
}

/// The response to a request, or an error if bytes that are not HTTP were left in `raw`.
async fn answer(
    request: Request<Incoming>,
    script: &Mutex<Script>,
    raw: &Mutex<Option<(Bytes, End)>>,
) -> Result<Response<Body>, io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let request = Received {
        method: head.method,
        path: head.uri.to_string(),
        headers: head.headers,
        version: head.version,
        body,
        answered: None,
    };
    let reply = lock(script).take(request);
    wait::pace(reply.delay).await;
    if let ReplyBody::Raw(bytes, end) = reply.body {
        *raw.lock().unwrap_or_else(PoisonError::into_inner) = Some((bytes, end));
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    let mut response = Response::new(reply_body(&reply.body));
    *response.status_mut() = StatusCode::from_u16(reply.status).map_err(io::Error::other)?;
    for (name, value) in reply.headers {
        let name: http::HeaderName = name.parse().map_err(io::Error::other)?;
        response
            .headers_mut()
            .append(name, value.parse().map_err(io::Error::other)?);
    }
    Ok(response)
}

fn reply_body(body: &ReplyBody) -> Body {
    match body {
        ReplyBody::Whole(bytes) | ReplyBody::Raw(bytes, _) => {
            Full::new(bytes.clone()).boxed_unsync()
        }
        ReplyBody::Endless(pause) => {
            let pieces = stream::repeat(*pause).then(async |pause| {
                wait::pace(pause).await;
                Ok(Frame::data(PIECE))
            });
            StreamBody::new(pieces).boxed_unsync()
        }
        ReplyBody::Large(bytes) => {
            let count = usize::try_from(bytes.div_ceil(PIECE.len() as u64)).unwrap_or(usize::MAX);
            let pieces = stream::repeat(PIECE)
                .take(count)
                .map(|piece| Ok(Frame::data(piece)));
            StreamBody::new(pieces).boxed_unsync()
        }
    }
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::HttpClient;

    #[tokio::test]
    async fn what_was_sent_is_recorded_and_what_was_scripted_is_answered() {
        let receiver = HttpReceiver::start().await;
        receiver.reply_next(
            HttpReply::status(429)
                .header("retry-after", "7")
                .body("later"),
        );
        let client = HttpClient::new();
        let url = receiver.url("/hook?a=1");
        let first = client
            .post(&url, &[("x-name", "value")], &b"\x00\xff"[..])
            .await
            .unwrap();
        assert_eq!(
            (first.status, first.header("retry-after")),
            (429, Some("7"))
        );
        assert_eq!(first.text(), "later");
        assert_eq!(client.get(&url).await.unwrap().status, 200);
        let seen = receiver.received_at_least(2).await;
        assert_eq!(seen[0].path, "/hook?a=1");
        assert_eq!(seen[0].header("x-name"), Some("value"));
        assert_eq!(seen[0].body, &b"\x00\xff"[..]);
        assert_eq!(seen[1].method, Method::GET);
    }

    #[tokio::test]
    async fn a_closed_reply_is_no_answer_and_the_request_arrived() {
        let receiver = HttpReceiver::start().await;
        receiver.reply(HttpReply::closed());
        let answer = HttpClient::new().post(&receiver.url("/"), &[], "x").await;
        assert!(answer.is_err(), "{answer:?}");
        assert!(!receiver.received().is_empty());
    }

    #[tokio::test]
    async fn bytes_that_are_not_http_are_sent_as_they_are() {
        for end in [End::Close, End::Reset, End::Stall, End::Flood] {
            let receiver = HttpReceiver::start().await;
            receiver.reply(HttpReply::raw("hello", end));
            let mut stream = TcpStream::connect(receiver.address()).await.unwrap();
            let request = b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\nx";
            stream.write_all(request).await.unwrap();
            let mut heard = [0; 5];
            stream.read_exact(&mut heard).await.unwrap();
            assert_eq!(&heard, b"hello");
            let mut rest = Vec::new();
            let reading = stream.read_to_end(&mut rest);
            let ended = tokio::time::timeout(Duration::from_millis(100), reading).await;
            assert_eq!(
                ended.is_ok(),
                matches!(end, End::Close | End::Reset),
                "{end:?}"
            );
            assert_eq!(receiver.received()[0].answered, None);
            assert_eq!(receiver.connections(), 1);
        }
    }

    #[tokio::test]
    async fn a_large_body_is_as_long_as_was_asked() {
        let receiver = HttpReceiver::start().await;
        receiver.reply(HttpReply::status(200).large_body(1 << 20));
        let answer = HttpClient::new().get(&receiver.url("/")).await.unwrap();
        assert_eq!(answer.body.len(), 1 << 20);
    }

    #[tokio::test]
    async fn an_endless_body_does_not_end() {
        let receiver = HttpReceiver::start().await;
        receiver.reply(HttpReply::status(200).endless_body(Duration::from_millis(1)));
        let client = HttpClient::new();
        let url = receiver.url("/");
        let waited = tokio::time::timeout(Duration::from_millis(100), client.get(&url)).await;
        assert!(waited.is_err(), "{waited:?}");
    }

    #[tokio::test]
    async fn a_receiver_that_was_down_comes_up_at_the_same_address() {
        let receiver = HttpReceiver::start().await;
        let (address, url) = (receiver.address(), receiver.url("/"));
        let client = HttpClient::new();
        assert_eq!(client.get(&url).await.unwrap().status, 200);
        drop(receiver);
        wait::eventually(Duration::from_secs(5), async || {
            client.get(&url).await.is_err()
        })
        .await;
        let again = HttpReceiver::start_at(address).await.unwrap();
        assert_eq!(client.get(&url).await.unwrap().status, 200);
        assert_eq!(again.received().len(), 1);
    }
}
