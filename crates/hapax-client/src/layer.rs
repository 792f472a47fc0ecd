//! A tower layer with the same retry policy, for any HTTP client that is a tower service.
//!
//! It retries by status and error, sends the same request in each attempt, and generates the key of
//! a POST or PATCH that has none. It sets `X-Request-Timeout`, `Idempotency-Attempt` and
//! `traceparent` for each attempt, and replaces those of the caller.
//!
//! It does not read response bodies: it cannot detect a response that breaks off after its head,
//! and the attempts do not contain the `code` of a problem. It has no journal; a caller that has one
//! sets the key on the request.

use std::{
    fmt,
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hapax::{Clock, Random, key::IdempotencyKey, retry, sink::BoxError, trace::Traces};
use http::{HeaderValue, Request, Response};
use tokio::time::{Instant, error::Elapsed, sleep, timeout};
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument as _;

use crate::{
    attempt::Attempts,
    destination,
    operation::{Operation, Step},
    policy::{IDEMPOTENCY_KEY, Policy, REQUEST_TIMEOUT, Seen, is_repeatable, is_stored, wants_key},
    shared::Shared,
    stopped::Stopped,
    trace,
};

/// Whether an error means that no byte of the request was sent.
type IsUnsent<E> = Arc<dyn Fn(&E) -> bool + Send + Sync>;

/// The outcome of an attempt: a response, the error of the client, or nothing in time.
type Received<R, E> = Result<Result<Response<R>, E>, Elapsed>;

/// Adds the policy to a client. All services that it creates share the budgets.
pub struct RetryLayer<E> {
    shared: Arc<Shared>,
    is_unsent: IsUnsent<E>,
    traces: Traces,
}

impl<E> RetryLayer<E> {
    /// Creates a layer with this policy.
    ///
    /// `is_unsent` returns true if an error means that no byte of the request was sent, like
    /// `hyper_util::client::legacy::Error::is_connect`. If that is not certain, it must return
    /// `false`: a request without a key would be sent again, and could be executed twice.
    pub fn new(
        policy: Policy,
        clock: Clock,
        random: Random,
        is_unsent: impl Fn(&E) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            traces: Traces::sampled(random.clone(), 1.0),
            shared: Arc::new(Shared::new(policy, clock, random)),
            is_unsent: Arc::new(is_unsent),
        }
    }

    /// Sets which share of the traces that the client starts is recorded. By default all of them
    /// are. If it is off, a `traceparent` of the caller is sent unchanged, and no other.
    #[must_use]
    pub fn traces(self, traces: Traces) -> Self {
        Self { traces, ..self }
    }
}

impl<S, E> Layer<S> for RetryLayer<E> {
    type Service = Retry<S, E>;

    fn layer(&self, inner: S) -> Retry<S, E> {
        let layer = self.clone();
        Retry { inner, layer }
    }
}

/// A client with the policy.
///
/// Every attempt sends a clone of the request, so the clones of its body must be independent, as
/// those of `http_body_util::Full` are. Between two attempts the last response is kept, with its
/// connection, because it is returned unless another attempt follows.
pub struct Retry<S, E> {
    inner: S,
    layer: RetryLayer<E>,
}

/// The record of an operation, added to its response as an extension.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Retried {
    /// The key of the request.
    pub key: Option<HeaderValue>,
    /// Why there was no further attempt.
    pub stopped: Stopped,
    /// The `Retry-After` of the response.
    pub retry_after: Option<Duration>,
    /// The attempts.
    pub attempts: Attempts,
}

/// The operation ended without a response: the last attempt has failed, or the client accepts no
/// more requests.
#[derive(Debug, thiserror::Error)]
#[error("no response was received")]
#[non_exhaustive]
pub struct LayerError {
    /// Why there was no further attempt.
    pub stopped: Stopped,
    /// The attempts.
    pub attempts: Attempts,
    /// The error of the last attempt, or of the client.
    pub source: BoxError,
}

impl<S, B, R> Service<Request<B>> for Retry<S, S::Error>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + 'static,
    B: Clone + Send + Sync + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = LayerError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, LayerError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), LayerError>> {
        let ready = self.inner.poll_ready(context);
        ready.map_err(|error| unready(error, Attempts::default()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Only this service is known to be ready, so it is called, and its clone replaces it.
        let ready = self.inner.clone();
        let inner = mem::replace(&mut self.inner, ready);
        Box::pin(run(inner, self.layer.clone(), request))
    }
}

/// Sends a request with all its retries.
async fn run<S, B, R>(
    mut inner: S,
    layer: RetryLayer<S::Error>,
    mut request: Request<B>,
) -> Result<Response<R>, LayerError>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    B: Clone,
{
    let started = Instant::now();
    let RetryLayer {
        shared,
        is_unsent,
        traces,
    } = layer;
    let key = ensure_key(&mut request, &shared.random);
    let repeatable = is_repeatable(request.method(), key.is_some());
    // A request without an authority is for a client with a single server.
    let destination = destination::of(request.uri()).unwrap_or_else(|| "".into());
    let place = trace::place(&traces, request.headers());
    let mut operation = Operation::begin(&shared, destination, repeatable);
    loop {
        let (left, attempt_max) = operation.time(started.elapsed());
        let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut attempt = request.clone();
        attempt
            .headers_mut()
            .insert(REQUEST_TIMEOUT, HeaderValue::from(millis));
        let number = operation.number();
        let span = trace::attempt(&traces, &place, number, attempt.headers_mut());
        let received = timeout(attempt_max, inner.call(attempt).instrument(span)).await;
        let (seen, note) = classify(&received, &is_unsent, &shared);
        let stopped = match operation.seen(seen, None, &note, started.elapsed()) {
            Step::Stop(stopped) => stopped,
            Step::Wait(wait) => {
                sleep(wait).await;
                // A client without a free connection must not keep the operation past its deadline.
                let (left, _) = operation.time(started.elapsed());
                let ready = poll_fn(|context| inner.poll_ready(context));
                if let Ok(Err(error)) = timeout(left, ready).await {
                    return Err(unready(error, operation.abandon()));
                }
                // If the client was not ready in time, this says that it is too late. Otherwise the
                // retry is subtracted from the budget now, because it is sent now.
                match operation.resume(started.elapsed()) {
                    Ok(()) => continue,
                    Err(stopped) => stopped,
                }
            }
        };
        return conclude(received, key, seen, stopped, operation.end(stopped));
    }
}

/// Returns the key of a request. A POST or PATCH without a key gets a new one.
fn ensure_key<B>(request: &mut Request<B>, random: &Random) -> Option<HeaderValue> {
    if wants_key(request.method()) && !request.headers().contains_key(IDEMPOTENCY_KEY) {
        let key = IdempotencyKey::mint(random);
        let key = HeaderValue::from_str(key.as_str()).expect("a UUID is visible ASCII");
        request.headers_mut().insert(IDEMPOTENCY_KEY, key);
    }
    request.headers().get(IDEMPOTENCY_KEY).cloned()
}

/// Returns what an attempt means for the policy, and the note for its record.
fn classify<R, E>(
    received: &Received<R, E>,
    is_unsent: &IsUnsent<E>,
    shared: &Shared,
) -> (Seen, String) {
    match received {
        Ok(Ok(response)) => {
            let header = |name| response.headers().get(name)?.to_str().ok();
            let retry_after = retry::retry_after(header, shared.clock.now());
            let status = response.status();
            let note = retry_after.map(|wait| format!("retry after {} s", wait.as_secs()));
            let seen = Seen::Response {
                status,
                retry_after,
                is_stored: is_stored(response.headers()),
            };
            (seen, note.unwrap_or_default())
        }
        Ok(Err(error)) if is_unsent(error) => (Seen::NotSent, "not sent".to_owned()),
        Ok(Err(_)) => (Seen::Lost, "the response was lost".to_owned()),
        Err(_) => (Seen::TimedOut, "no response in time".to_owned()),
    }
}

/// Returns the last response with the record of the operation, or the last error.
fn conclude<R, E: Into<BoxError>>(
    received: Received<R, E>,
    key: Option<HeaderValue>,
    seen: Seen,
    stopped: Stopped,
    attempts: Attempts,
) -> Result<Response<R>, LayerError> {
    let source: BoxError = match received {
        Ok(Ok(mut response)) => {
            response.extensions_mut().insert(Retried {
                key,
                stopped,
                retry_after: seen.asked(),
                attempts,
            });
            return Ok(response);
        }
        Ok(Err(error)) => error.into(),
        Err(elapsed) => elapsed.into(),
    };
    Err(LayerError {
        stopped,
        attempts,
        source,
    })
}

/// The error for a client that accepts no more requests.
fn unready(error: impl Into<BoxError>, attempts: Attempts) -> LayerError {
    LayerError {
        stopped: Stopped::Final,
        attempts,
        source: error.into(),
    }
}

impl<S: Clone, E> Clone for Retry<S, E> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<E> Clone for RetryLayer<E> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            is_unsent: Arc::clone(&self.is_unsent),
            traces: self.traces.clone(),
        }
    }
}

impl<S, E> fmt::Debug for Retry<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Retry")
    }
}

impl<E> fmt::Debug for RetryLayer<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RetryLayer").field(&self.shared).finish()
    }
}
