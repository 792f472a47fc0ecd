//! HTTP/1.1 client of one provider, which turns responses into outcomes.
//!
//! A 4xx response with a code is a refusal, unless it asks for a retry. After any other response
//! that is not a success, the outcome of the call is unknown. Only a code shows that the provider
//! itself has finished the call. Calls are bounded in time, and responses in bytes. The client
//! never retries by itself; its caller does.

use std::{fmt, time::Duration};

use hapax::{
    saga::{Outcome, Refusal},
    sink::BoxError,
    trace::{TRACEPARENT, TRACESTATE},
};
use hapax_http::problem::IN_PROGRESS;
use http::{
    Request, Response, StatusCode, Uri,
    header::{CONTENT_TYPE, RETRY_AFTER},
    request,
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{CallError, Found, Label, Made, Wanted};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(1);
/// How long a call may take, including its response: longer than the delay of a slow provider.
const CALL: Duration = Duration::from_secs(4);
/// How long an idle connection stays open: less than servers usually keep it.
const IDLE: Duration = Duration::from_secs(10);
/// The largest response body.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// The code of a response with the object that the key has already created.
const DUPLICATE: &str = "duplicate";
/// The kind of a record for a refusal.
const DECLINED: &str = "declined";

/// A client of one provider.
#[derive(Clone)]
pub(super) struct ProviderClient {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    /// The provider's URL, without a slash at the end.
    base: String,
}

/// The body of an error response.
#[derive(Debug, Deserialize)]
struct ErrorBody {
    code: String,
    #[serde(default)]
    detail: String,
    existing: Option<Made>,
}

impl ProviderClient {
    /// Creates a client of the provider at `base`, a URL of plain HTTP.
    pub(super) fn at(base: &Uri) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .retry_canceled_requests(false)
            .build(connector);
        let base = base.to_string().trim_end_matches('/').to_owned();
        Self { http, base }
    }

    /// Posts `body`, which should create an object like `wanted`.
    pub(super) async fn post(
        &self,
        path: &str,
        label: Label<'_>,
        wanted: Wanted<'_>,
        body: &impl Serialize,
    ) -> Outcome<Made> {
        let request = Request::post(self.url(path)).header("idempotency-key", label.key);
        let called = match serde_json::to_vec(body) {
            Ok(body) => self.call(request, label, body.into()).await,
            Err(error) => Err(unwritten(error)),
        };
        let result = called.and_then(|answer| outcome(&answer, wanted));
        result.unwrap_or_else(|error| Outcome::Unknown(error.into()))
    }

    /// Looks up the outcome of the key of `label`, which should have created `wanted`.
    pub(super) async fn look_up(&self, label: Label<'_>, wanted: Wanted<'_>) -> Found<Made> {
        let request = Request::get(self.url(&format!("/operations/{}", label.key)));
        let called = self.call(request, label, Bytes::new()).await;
        let outcome = called.and_then(|answer| found(&answer, wanted));
        outcome.unwrap_or_else(|error| Found::Unknown(error.into()))
    }

    async fn call(
        &self,
        mut request: request::Builder,
        label: Label<'_>,
        body: Bytes,
    ) -> Result<Response<Bytes>, CallError> {
        for name in [TRACEPARENT, TRACESTATE] {
            if let Some(value) = label.headers.get(name) {
                request = request.header(name, value);
            }
        }
        let request = request.header(CONTENT_TYPE, "application/json");
        let request = request.body(Full::new(body)).map_err(unwritten)?;
        let exchanged = timeout(CALL, self.exchange(request)).await;
        exchanged.unwrap_or_else(|_| Err(CallError::open("the provider did not respond in time")))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, CallError> {
        let response = self.http.request(request).await.map_err(|error| {
            let failed = if error.is_connect() {
                CallError::over("the provider cannot be reached")
            } else {
                // Part of the request may have been sent, so the provider may be working on it.
                CallError::open("the connection closed without a response")
            };
            failed.caused_by(error)
        })?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
        let body =
            body.map_err(|error| CallError::open("the response was cut off").caused_by(error))?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

/// Returns the outcome that the response to an operation shows.
fn outcome(answer: &Response<Bytes>, wanted: Wanted<'_>) -> Result<Outcome<Made>, CallError> {
    let (status, body) = (answer.status(), answer.body());
    if status.is_success() {
        return made(body, wanted).map(Outcome::Done);
    }
    // A proxy that responds with these may have passed the call on, or asks for a retry.
    let is_passing = matches!(status.as_u16(), 408 | 425 | 429);
    let Ok(result) = serde_json::from_slice::<ErrorBody>(body) else {
        return Err(failure(status, false));
    };
    match result.existing {
        Some(made) if result.code == DUPLICATE => {
            let made = wanted.check(made)?;
            let is_duplicate = true;
            Ok(Outcome::Done(Made {
                is_duplicate,
                ..made
            }))
        }
        _ if is_known(answer, &result.code) => {
            Err(CallError::open("the provider already has this key"))
        }
        _ if status.is_client_error() && !is_passing => {
            Ok(Outcome::Refused(Refusal::new(result.code, result.detail)))
        }
        _ => Err(failure(status, true)),
    }
}

/// Returns whether a response shows that a call under the same key is done or running.
fn is_known(answer: &Response<Bytes>, code: &str) -> bool {
    let is_later = answer.headers().contains_key(RETRY_AFTER);
    let is_running = answer.status() == StatusCode::CONFLICT && is_later;
    is_running || code == IN_PROGRESS.name() || code == DUPLICATE
}

/// Returns the outcome that the response to a look-up shows.
fn found(answer: &Response<Bytes>, wanted: Wanted<'_>) -> Result<Found<Made>, CallError> {
    #[derive(Deserialize)]
    struct Kind {
        kind: String,
    }
    let (status, body) = (answer.status(), answer.body());
    if let Ok(Kind { kind }) = serde_json::from_slice(body)
        && kind == DECLINED
        && let Ok(ErrorBody { code, detail, .. }) = serde_json::from_slice(body)
    {
        return Ok(Found::Refused(Refusal::new(code, detail)));
    }
    match (status, serde_json::from_slice::<ErrorBody>(body)) {
        (status, _) if status.is_success() => made(body, wanted).map(Found::Done),
        // Only with a code: a 404 from a proxy says nothing about the key.
        (StatusCode::NOT_FOUND, Ok(_)) => Ok(Found::Absent),
        (_, outcome) => Err(failure(status, outcome.is_ok())),
    }
}

fn made(body: &[u8], wanted: Wanted<'_>) -> Result<Made, CallError> {
    // The error of the parser is not passed on, because it would quote the body.
    let made = serde_json::from_slice(body);
    let made = made.map_err(|_| CallError::open("the response is not a valid object"))?;
    wanted.check(made)
}

/// Builds the error of a failed call.
///
/// `is_told`: the response has a code, which shows that it comes from the provider itself.
fn failure(status: StatusCode, is_told: bool) -> CallError {
    let error_chain = format!("the provider responded {}", status.as_u16());
    match status {
        // A gateway timed out, and the provider may still be working on the call.
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => {
            CallError::open(error_chain)
        }
        _ if is_told => CallError::over(error_chain),
        _ => CallError::open(error_chain),
    }
}

fn unwritten(error: impl Into<BoxError>) -> CallError {
    CallError::over("the request cannot be written").caused_by(error)
}

impl fmt::Debug for ProviderClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProviderClient").field(&self.base).finish()
    }
}
