//! HTTP/2 connections to an instance: as many as its limit of concurrent streams demands.
//!
//! hyper accepts any number of requests for a connection. Those that exceed the instance's limit
//! (`SETTINGS_MAX_CONCURRENT_STREAMS`) wait inside hyper and h2, where the gateway cannot see whether they
//! were sent. A request is therefore given to a connection only if a stream of it is free, and another
//! connection is opened if there is none. The limit is known before the first request, because a new
//! connection may open no stream until the settings of the instance have arrived.
//!
//! A stream counts until the response has ended and hyper has dropped the body of the request. h2 may count
//! it a little longer, until the last bytes of the request are written.

use std::{
    error::Error as _,
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, HttpBody};
use hapax::sink::BoxError;
use hyper::{
    client::conn::http2,
    rt::{Executor, Read, Write},
};
use hyper_util::rt::TokioTimer;
use tokio::{
    sync::{Mutex as AsyncMutex, Notify},
    time::Instant,
};

use crate::holding::Holding;

/// Maximum size of the headers of a response, in bytes.
const HEADER_LIST_BYTES_MAX: u32 = 256 * 1024;
/// The interval at which a connection with requests in flight is checked.
const PING: Duration = Duration::from_secs(20);

/// The connections to an instance.
#[derive(Default)]
pub(super) struct Pool(AsyncMutex<Vec<Shared>>);

/// A connection that several requests use at the same time.
pub(super) struct Shared {
    sender: http2::SendRequest<Body>,
    /// The current limit of the instance; 0 if the connection has ended.
    streams_max: Arc<dyn Fn() -> usize + Send + Sync>,
    streams: Arc<AtomicUsize>,
    used_at: Instant,
}

/// A stream of a connection, which is free again when the value is dropped.
#[derive(Debug)]
pub(super) struct Stream(Arc<AtomicUsize>);

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection with a stream that is reserved on it.
pub(super) struct Reserved {
    pub(super) sender: http2::SendRequest<Body>,
    pub(super) stream: Arc<Stream>,
    /// Whether the connection was opened for an earlier request.
    pub(super) is_pooled: bool,
}

impl Pool {
    /// Reserves a stream. `open` is used if no connection has a free one, or if a fresh connection is asked
    /// for, which then replaces the others.
    pub(super) async fn reserve(
        &self,
        open: impl Future<Output = Result<Shared, BoxError>>,
        is_fresh: bool,
        idle_max: Duration,
    ) -> Result<Reserved, BoxError> {
        let mut connections = self.0.lock().await;
        if is_fresh {
            connections.clear();
        }
        let mut is_first = true;
        connections.retain(|it| {
            !it.sender.is_closed() && (mem::take(&mut is_first) || !it.is_idle(idle_max))
        });
        let reserved = connections
            .iter_mut()
            .find_map(|it| Some((it.reserve()?, it.sender.clone())));
        if let Some((stream, sender)) = reserved {
            return Ok(Reserved {
                sender,
                stream,
                is_pooled: true,
            });
        }
        // The lock is held, so that requests that arrive in the meantime use the new connection.
        let mut opened = open.await?;
        let Some(stream) = opened.reserve() else {
            return Err("the connection has ended".into());
        };
        let sender = opened.sender.clone();
        connections.push(opened);
        Ok(Reserved {
            sender,
            stream,
            is_pooled: false,
        })
    }
}

impl Shared {
    /// Reserves a stream if one is free. Only one caller at a time has the connections, so the limit is not
    /// exceeded.
    fn reserve(&mut self) -> Option<Arc<Stream>> {
        if self.streams.load(Ordering::Relaxed) >= (self.streams_max)() {
            return None;
        }
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.used_at = Instant::now();
        Some(Arc::new(Stream(Arc::clone(&self.streams))))
    }

    fn is_idle(&self, idle_max: Duration) -> bool {
        self.streams.load(Ordering::Relaxed) == 0 && self.used_at.elapsed() >= idle_max
    }
}

/// Begins HTTP/2 on a connection, and waits for the settings of the instance.
pub(super) async fn handshake<T>(io: T) -> Result<Shared, BoxError>
where
    T: Read + Write + Unpin + Send + 'static,
{
    let progress = Arc::new(Notify::new());
    let mut builder = http2::Builder::new(Tasks(Arc::clone(&progress)));
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .initial_max_send_streams(0_usize);
    let (sender, connection): (http2::SendRequest<Body>, _) = builder.handshake(io).await?;
    let connection = Arc::new(Mutex::new(Some(Box::pin(connection))));
    let (driver, ended) = (Driver(Arc::clone(&connection)), Arc::clone(&progress));
    tokio::spawn(async move {
        let result = poll_fn(|context| driver.poll(context)).await;
        drop(driver);
        if let Err(error) = result {
            tracing::debug!(%error, "connection to an upstream ended early");
        }
        ended.notify_waiters();
    });
    let streams_max = move || {
        let connection = lock(&connection);
        connection
            .as_ref()
            .map_or(0, |connection| connection.current_max_send_streams())
    };
    let opened = Shared {
        sender,
        streams_max: Arc::new(streams_max),
        streams: Arc::default(),
        used_at: Instant::now(),
    };
    loop {
        let progressed = progress.notified();
        if opened.sender.is_closed() {
            return Err("the connection was closed before its settings arrived".into());
        }
        if (opened.streams_max)() > 0 {
            return Ok(opened);
        }
        progressed.await;
    }
}

/// Whether the instance has reset the stream of a request with `REFUSED_STREAM`, before a response. It has
/// then done nothing with the request (RFC 9113, section 8.7).
///
/// `GOAWAY` proves the same of the streams after its last one (RFC 9113, section 6.8), but its error does
/// not prove that the stream is one of them. hyper 1.12 asks the connection again after it has opened the
/// stream of a request (`ClientTask::poll`), and reports the same error for every stream if the frame has
/// arrived in between. A service that is being stopped sends such a frame with the highest number first,
/// and still processes the request. The error contains neither the number of the stream nor the last one
/// of the frame, so the outcome is unknown. A request that has no stream yet is handed back.
pub(super) fn is_refused(error: &hyper::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let is_reset = error.is_reset() && error.is_remote();
            return is_reset && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        }
        cause = error.source();
    }
    false
}

/// The body of a request, which occupies its stream until hyper drops it.
pub(super) fn on_stream(body: Body, stream: &Arc<Stream>) -> Body {
    if body.is_end_stream() {
        return body;
    }
    Body::new(Holding::new(body, Arc::clone(stream)))
}

/// Polls a connection, which its limit is read from as well. The connection is dropped with it: hyper then
/// refuses requests, instead of waiting for a task that has ended.
struct Driver<C>(Arc<Mutex<Option<Pin<Box<C>>>>>);

impl<C: Future> Driver<C> {
    fn poll(&self, context: &mut Context<'_>) -> Poll<C::Output> {
        match lock(&self.0).as_mut() {
            Some(connection) => connection.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl<C> Drop for Driver<C> {
    fn drop(&mut self) {
        *lock(&self.0) = None;
    }
}

/// Runs the tasks of a connection, and notifies after each of their steps. hyper has no event for the
/// arrival of settings.
#[derive(Clone)]
struct Tasks(Arc<Notify>);

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        let progress = Arc::clone(&self.0);
        tokio::spawn(async move {
            let mut task = pin!(task);
            poll_fn(|context| {
                let polled = task.as_mut().poll(context);
                progress.notify_waiters();
                polled
            })
            .await
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
