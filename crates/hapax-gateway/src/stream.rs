//! Unprotected requests: both bodies stream through, with their trailers, in constant memory.
//!
//! A request is sent again only if nothing of it left the gateway, like a protected one. The time limit of
//! the route counts from the last part of the request's body that was passed on, as in nginx and
//! `HAProxy`, so that an upload may take any time while it makes progress. There is no time limit for the
//! body of the response, so that server-sent events pass.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::{Body, Bytes};
use hapax::{key::Tenant, sink::BoxError, telemetry::error_chain};
use hapax_http::{
    Problem,
    problem::{REQUEST_INVALID, TIMEOUT, UNAVAILABLE},
};
use http::{Request, Response, StatusCode, Version};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    headers::remove_hop_by_hop,
    upgrade::{self, Upgrade},
    upstream::{InFlight, SendError, Upstream},
};

/// The limit of an exchange that is limited by its progress.
const NO_LIMIT: Duration = Duration::from_hours(24 * 365);

/// Sends a request to the upstream, and passes its response on. `idle_max` is how long the body of the
/// request may make no progress, and how long after its end the head of the response may take.
///
/// # Errors
/// 502, 503 or 504 if there is no response, 400 if the body is not as long as announced, or if it
/// cannot be read.
pub(crate) async fn stream(
    upstream: &Upstream,
    request: Request<Body>,
    upgrade: Option<Upgrade>,
    tenant: Option<&Tenant>,
    idle_max: Duration,
) -> Result<Response<Body>, Problem> {
    let request = without_unannounced(request, idle_max).await?;
    let has_body = !request.body().is_end_stream();
    let slot = upstream.slot(tenant).map_err(refused)?;
    let progress = BodyProgress::begin();
    let request = request.map(|body| progress.observe(body));
    let end = Instant::now() + NO_LIMIT;
    let sent = tokio::select! {
        sent = upstream.send(request, slot, end, &|| true) => sent,
        () = progress.stalled(idle_max) => return Err(late()),
    };
    let (mut response, in_flight) = sent.map_err(|error| {
        if progress.has_failed() {
            return not_readable(error);
        }
        refused(error)
    })?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(upgrade) = upgrade else {
            let detail = "the service changed the protocol although it was not asked to";
            return Err(Problem::new(UNAVAILABLE)
                .status(StatusCode::BAD_GATEWAY)
                .detail(detail));
        };
        return Ok(upgrade::accepted(upgrade, response, in_flight));
    }
    remove_hop_by_hop(response.headers_mut(), &[]);
    let has_end = !has_body && response.version() == Version::HTTP_2;
    let streamed = |body| Streamed {
        body,
        has_end,
        in_flight,
    };
    Ok(response.map(|body| Body::new(streamed(body))))
}

/// The response to a request that has none of the upstream.
pub(crate) fn refused(error: SendError) -> Problem {
    tracing::warn!(error = error_chain(&error), "upstream sent no response");
    let problem = match &error {
        SendError::Full(bound) => Problem::new(UNAVAILABLE)
            .detail(format!(
                "too many requests of the {bound} are in flight; nothing was sent"
            ))
            .retry_after(Duration::from_secs(1)),
        SendError::NotSent { .. } => Problem::new(UNAVAILABLE)
            .detail("the service cannot be reached; nothing was sent")
            .retry_after(Duration::from_secs(1)),
        SendError::Refused { .. } => Problem::new(UNAVAILABLE)
            .detail("the service has refused the request, and has not acted on it")
            .retry_after(Duration::from_secs(1)),
        SendError::Unknown { is_late: true, .. } => late(),
        SendError::Unknown { .. } => Problem::new(UNAVAILABLE)
            .status(StatusCode::BAD_GATEWAY)
            .detail("the connection to the service failed before it responded"),
    };
    problem.caused_by(error)
}

/// The response to a request whose body the client has not sent as HTTP prescribes, such as one with a
/// malformed chunk. The service has received a part of it at most, and its connection is closed.
fn not_readable(error: SendError) -> Problem {
    let detail = "the body of the request could not be read";
    Problem::new(REQUEST_INVALID)
        .detail(detail)
        .caused_by(error)
}

/// Refuses a body that follows `Content-Length: 0`, which is possible in HTTP/2. hyper does not read a body
/// of this length, so the request would be sent before h2 has found the error.
async fn without_unannounced(
    request: Request<Body>,
    idle_max: Duration,
) -> Result<Request<Body>, Problem> {
    if request.body().size_hint().exact() != Some(0) || request.body().is_end_stream() {
        return Ok(request);
    }
    let (parts, mut body) = request.into_parts();
    let is_empty = async {
        while let Some(frame) = body.frame().await {
            let is_part = |frame: Frame<Bytes>| frame.into_data().is_ok_and(|it| !it.is_empty());
            if frame.map_or(true, is_part) {
                return false;
            }
        }
        true
    };
    if timeout(idle_max, is_empty).await.unwrap_or(false) {
        Ok(Request::from_parts(parts, Body::empty()))
    } else {
        let detail = "the body is longer than its Content-Length";
        Err(Problem::new(REQUEST_INVALID).detail(detail))
    }
}

fn late() -> Problem {
    Problem::new(TIMEOUT).detail("the service did not respond in time")
}

/// The last progress of a request's body, and whether it could be read.
#[derive(Clone)]
struct BodyProgress(Arc<Mutex<Seen>>);

struct Seen {
    last: Instant,
    has_failed: bool,
}

impl BodyProgress {
    fn begin() -> Self {
        let seen = Seen {
            last: Instant::now(),
            has_failed: false,
        };
        Self(Arc::new(Mutex::new(seen)))
    }

    /// Whether the client has not sent the body as HTTP prescribes, or has disconnected.
    fn has_failed(&self) -> bool {
        self.seen().has_failed
    }

    /// Records the progress of a body: each part that is taken to be sent.
    fn observe(&self, body: Body) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let progress = self.clone();
        Body::new(Observed { body, progress })
    }

    /// Waits until there was no progress for this time.
    async fn stalled(&self, idle_max: Duration) {
        loop {
            let end = self.seen().last + idle_max;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of a request, whose progress is recorded.
struct Observed {
    body: Body,
    progress: BodyProgress,
}

impl http_body::Body for Observed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = &polled {
            let mut seen = self.progress.seen();
            seen.last = Instant::now();
            seen.has_failed |= matches!(frame, Some(Err(_)));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response, which occupies its place at the upstream until it has ended.
struct Streamed {
    body: Incoming,
    /// Whether HTTP/2 marks the end of every complete response to this request. A service that responds
    /// before the end of the request's body may reset the stream instead.
    has_end: bool,
    #[expect(dead_code, reason = "it is held")]
    in_flight: InFlight,
}

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        // hyper ends the body of a stream that is reset without an error as if it were complete.
        if frame.is_none() && self.has_end && !self.body.is_end_stream() {
            let error = "the service reset the stream before its response was complete";
            return Poll::Ready(Some(Err(error.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
