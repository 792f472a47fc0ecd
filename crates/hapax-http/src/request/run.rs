//! Run of a handler: limits its time, catches its panics, and reads its whole response.

use std::panic::AssertUnwindSafe;

use axum::{
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, Request},
    response::Response,
};
use futures_util::FutureExt;
use hapax::{
    idempotency::{Disposition, OnFailure, StoredResponse, disposition},
    limits::RESPONSE_BYTES_MAX,
    telemetry::panic_message,
};
use http::{Extensions, HeaderMap, HeaderName, StatusCode, header::RETRY_AFTER, request, response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::{Instant, timeout_at};

use super::Inner;
use crate::{
    body::Kept,
    header::OWN_HEADERS,
    passed_on::KeepInProgress,
    problem::{self, Finality, IfStored, Problem, RESPONSE_TOO_LARGE, TIMEOUT},
    profile::Profile,
    request_id::RequestId,
    stored,
};

/// The complete response of a handler.
pub(crate) struct Finished {
    parts: response::Parts,
    body: Bytes,
    is_conflict: bool,
    is_store_failure: bool,
}

/// A handler with its request. A copy runs the same request again.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) inner: Inner,
    pub(crate) parts: request::Parts,
    pub(crate) kept: Kept,
    pub(crate) id: RequestId,
    pub(crate) end: Instant,
}

impl Run {
    /// Runs the handler and returns its response. A failure is returned as a problem.
    ///
    /// `split` removes from the response what is not for the client.
    pub(crate) async fn finish<P: Default>(
        self,
        split: impl FnOnce(Response) -> (P, Response),
    ) -> (P, Finished) {
        let (end, id, finality) = (self.end, self.id.clone(), self.finality());
        let run = AssertUnwindSafe(self.call(split)).catch_unwind();
        let ended = timeout_at(end, run).await;
        let problem = match ended {
            // The timer is coarse, so the clock is read again before anything is committed.
            Ok(Ok(Ok(finished))) if Instant::now() < end => return finished,
            Ok(Ok(Err(problem))) => problem,
            Ok(Err(panic)) => panicked(&*panic),
            Ok(Ok(Ok(_))) | Err(_) => Problem::new(TIMEOUT)
                .detail("the time ran out before the commit; nothing was changed"),
        };
        let response = problem::write_out_as(&problem, &id, finality);
        (P::default(), Finished::of(response).await)
    }

    /// Runs the handler and returns its response, unless `cut` completes first and aborts it.
    pub(crate) async fn finish_unless(self, cut: impl Future<Output = Problem>) -> Finished {
        let id = self.id.clone();
        let run = AssertUnwindSafe(self.call(|response| ((), response))).catch_unwind();
        let problem = tokio::select! {
            ended = run => match ended {
                Ok(Ok(((), finished))) => return finished,
                Ok(Err(problem)) => problem,
                Err(panic) => panicked(&*panic),
            },
            problem = cut => problem,
        };
        Finished::problem(&problem, &id).await
    }

    /// Whether a failure of this run is the outcome of its request.
    fn finality(&self) -> Finality {
        let marked = self.parts.extensions.get::<Finality>();
        marked.copied().unwrap_or_default()
    }

    async fn call<P>(
        self,
        split: impl FnOnce(Response) -> (P, Response),
    ) -> Result<(P, Finished), Problem> {
        let in_phases = self.parts.extensions.get::<problem::InPhases>().is_some();
        let finality = self.finality();
        let mut request = Request::from_parts(self.parts, self.kept.into_body());
        // The limit of the operation has already been applied.
        DefaultBodyLimit::disable().apply(&mut request);
        let response = self.inner.call(request).await;
        let (rest, response) = split(response);
        if in_phases {
            problem::unfinished(&response);
        }
        let is_conflict = problem::is_conflict(&response);
        let is_store_failure = problem::is_store_failure(&response);
        let (mut parts, body) = problem::settle(response, &self.id, finality).into_parts();
        // Only the layer says where a response comes from. If a handler could claim that its
        // response is stored, the client would forget a key whose outcome is unknown.
        for name in OWN_HEADERS {
            parts.headers.remove(name);
        }
        let body = collect(body).await?;
        let finished = Finished {
            parts,
            body,
            is_conflict,
            is_store_failure,
        };
        Ok((rest, finished))
    }
}

impl Finished {
    /// Returns what to store: the handler's choice, or else the rule for the status. A failure of
    /// the store is not an outcome of the request, and is not stored under any status.
    pub(crate) fn verdict(&self, on_failure: OnFailure, profile: Profile) -> Disposition {
        let overruled = self.parts.extensions.get::<Disposition>().copied();
        overruled.unwrap_or_else(|| {
            if self.is_store_failure {
                Disposition::Release
            } else {
                match disposition(self.parts.status.as_u16(), on_failure) {
                    Disposition::EffectFree if profile.stores_successes_only() => {
                        Disposition::Release
                    }
                    usual => usual,
                }
            }
        })
    }

    /// Whether the handler has failed because the store cannot be used.
    pub(crate) fn is_store_failure(&self) -> bool {
        self.is_store_failure
    }

    /// Whether the handler has returned the conflict of a transaction as a problem. A store whose
    /// statements run on a foreign driver does not see it itself.
    pub(crate) fn is_conflict(&self) -> bool {
        self.is_conflict
    }

    /// Whether the handler has chosen what to store.
    pub(crate) fn is_overruled(&self) -> bool {
        self.parts.extensions.get::<Disposition>().is_some()
    }

    /// Whether the handler does not know the outcome, and the key of a phased request stays in
    /// progress.
    pub(crate) fn keeps_in_progress(&self) -> bool {
        self.parts.extensions.get::<KeepInProgress>().is_some()
    }

    /// Returns the status.
    pub(crate) fn status(&self) -> StatusCode {
        self.parts.status
    }

    /// Splits the response into the part that is stored, and the headers and extensions that belong
    /// to this exchange only. An error that is stored does not ask for a retry: a retry with the
    /// same key receives it again.
    pub(crate) fn split(
        self,
        per_request: &[HeaderName],
    ) -> (StoredResponse, HeaderMap, Extensions) {
        let Self {
            mut parts,
            mut body,
            ..
        } = self;
        if let Some(IfStored(instead)) = parts.extensions.remove() {
            body = instead;
        }
        if parts.status.is_client_error() || parts.status.is_server_error() {
            parts.headers.remove(RETRY_AFTER);
        }
        let (headers, exchange) = stored::split(parts.headers, per_request);
        let response = StoredResponse {
            status: parts.status.as_u16(),
            headers,
            body,
        };
        (response, exchange, parts.extensions)
    }

    /// Returns the response for a request that stores none.
    pub(crate) fn into_response(self) -> Response {
        let mut response = Response::from_parts(self.parts, Body::from(self.body));
        // The body is complete now, even if the handler sent it as a stream.
        response
            .headers_mut()
            .remove(http::header::TRANSFER_ENCODING);
        response.headers_mut().remove(http::header::CONTENT_LENGTH);
        response
    }

    /// Creates the response for a problem.
    pub(crate) async fn problem(problem: &Problem, id: &RequestId) -> Self {
        Self::of(problem::write_out(problem, id)).await
    }

    /// Reads the response of a problem that is written out.
    async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = collect(body).await.unwrap_or_default();
        Self {
            parts,
            body,
            is_conflict: false,
            is_store_failure: false,
        }
    }
}

async fn collect(body: Body) -> Result<Bytes, Problem> {
    match Limited::new(body, RESPONSE_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::new(RESPONSE_TOO_LARGE)
            .detail(format!(
                "a stored response has at most {RESPONSE_BYTES_MAX} bytes; nothing was changed"
            ))
            .caused_by(error)),
        Err(error) => Err(Problem::internal(error)),
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Problem {
    Problem::internal(format!("the handler panicked: {}", panic_message(panic)))
}
