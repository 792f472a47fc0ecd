//! Rendering of problems.
//!
//! A problem that a handler raises is carried in the response's extensions. The first layer that
//! knows the request id writes the body, once, and logs the cause. So the written problem is what
//! is stored under a key.

use std::{
    borrow::Cow,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use hapax::{store::StoreError, telemetry::error_chain};
use http::{
    HeaderName, HeaderValue,
    header::{self, CONTENT_TYPE},
};
use serde::Serialize;
use serde_json::Value;

use super::{Problem, code};
use crate::{passed_on::Verbatim, request_id::RequestId};

/// The media type of problems.
const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
/// The base URL of the pages of the codes.
const TYPE_BASE: &str = "https://hapax.dev/problems/";

/// Headers that describe a body. They are removed when the body is replaced.
const OF_THE_BODY: [HeaderName; 6] = [
    CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::TRANSFER_ENCODING,
    header::CONTENT_RANGE,
    header::ETAG,
];

/// A problem in the extensions, for a layer that knows the request id.
#[derive(Clone)]
struct Carried(Arc<Mutex<Option<Problem>>>);

/// The reason of an error response without a body, for the log.
#[derive(Clone, Copy)]
struct Reason(&'static str);

/// The body of a problem that asks for a retry, in case it is stored: a retry with the same key would
/// only receive it again.
#[derive(Clone)]
pub(crate) struct IfStored(pub(crate) Bytes);

/// The detail of such a problem.
const STORED: &str = "this response is stored, and every request with this key receives it until the \
    key expires; to have the request executed again, send it with another Idempotency-Key";

/// Marks a phased request, whose key stays in progress if its handler fails.
#[derive(Clone, Copy)]
pub(crate) struct InPhases;

/// Whether the failure of a handler is the outcome of its request. In the extensions of a request
/// it marks a run with an optimistic claim, or one whose message is accepted at its commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Finality {
    /// The failure is the outcome, and is logged.
    #[default]
    Final,
    /// The failure is not the outcome: the request claims its key or accepts its message, and then
    /// replays a response or runs again.
    Provisional,
}

/// An error response.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct Document {
    /// The URL of the page about the code.
    #[serde(rename = "type")]
    page: String,
    /// The situation in words, the same for every problem of this code.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    title: &'static str,
    /// The status of the response.
    status: u16,
    /// What is wrong with this request.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    detail: Cow<'static, str>,
    /// The situation, for programs.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    code: &'static str,
    /// Whether the same request may succeed later.
    retryable: bool,
    /// The seconds in `Retry-After`, if the protocol of the clients wants them in the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    /// The member of the request that is not valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    member: Option<Cow<'static, str>>,
    /// The id of the request in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    request_id: Option<Box<str>>,
}

/// A response that carries `problem`. The body is already written, in case no layer follows.
pub(super) fn with_problem(problem: Problem) -> Response {
    let mut response = bare(&problem, None);
    let carried = Carried(Arc::new(Mutex::new(Some(problem))));
    response.extensions_mut().insert(carried);
    response
}

/// A 500 without a body. `reason` costs nothing unless the problem is rendered.
pub(crate) fn unwritten(reason: &'static str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    response.extensions_mut().insert(Reason(reason));
    response
}

/// The response for `problem` with the request id.
pub(crate) fn write_out(problem: &Problem, id: &RequestId) -> Response {
    write_out_as(problem, id, Finality::Final)
}

/// Writes a problem as the response of a run that may be provisional.
pub(crate) fn write_out_as(problem: &Problem, id: &RequestId, finality: Finality) -> Response {
    log(problem, id, finality);
    bare(problem, Some(id.as_str()))
}

/// Renders a carried problem, or converts an error response without a problem into one.
///
/// These are the error responses of axum's own extractors and fallbacks: without content type, or
/// plain text. A response that is marked as [`Verbatim`] is returned as it is.
pub(crate) fn settle(response: Response, id: &RequestId, finality: Finality) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_error || response.extensions().get::<Verbatim>().is_some() {
        return response;
    }
    if let Some(problem) = carried(&response) {
        return with_headers_of(&response, write_out_as(&problem, id, finality));
    }
    let media_type = response.headers().get(CONTENT_TYPE);
    let plain = media_type.is_none_or(|value| value.as_bytes().starts_with(b"text/plain"));
    if !plain {
        return response;
    }
    let problem = match response.extensions().get::<Reason>() {
        Some(Reason(reason)) => Problem::internal(*reason),
        None => Problem::new(code::for_status(status)),
    };
    with_headers_of(&response, write_out_as(&problem, id, finality))
}

/// Marks a carried problem so that it says that a retry continues, and not that it would be refused
/// again.
pub(crate) fn unfinished(response: &Response) {
    if let Some(carried) = response.extensions().get::<Carried>() {
        let mut slot = carried.0.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = slot.take().map(Problem::unfinished);
    }
}

/// Whether a carried problem was caused by a conflict with another transaction.
pub(crate) fn is_conflict(response: &Response) -> bool {
    let Some(carried) = response.extensions().get::<Carried>() else {
        return false;
    };
    let slot = carried.0.lock().unwrap_or_else(PoisonError::into_inner);
    let error = slot.as_ref().and_then(Problem::store_error);
    matches!(error, Some(StoreError::Conflict { .. }))
}

/// Whether a carried problem was caused by a store that cannot be used.
pub(crate) fn is_store_failure(response: &Response) -> bool {
    let Some(carried) = response.extensions().get::<Carried>() else {
        return false;
    };
    let slot = carried.0.lock().unwrap_or_else(PoisonError::into_inner);
    let source = slot.as_ref().and_then(|problem| problem.0.source.as_ref());
    let is_unavailable = |error: &StoreError| matches!(error, StoreError::Unavailable { .. });
    source.is_some_and(|source| is_caused_by(source.as_ref(), is_unavailable))
}

fn carried(response: &Response) -> Option<Problem> {
    let carried = response.extensions().get::<Carried>()?;
    let mut slot = carried.0.lock().unwrap_or_else(PoisonError::into_inner);
    slot.take()
}

/// Keeps the headers that were added to the problem: `Allow` of a 405, cookies, a service's own
/// headers.
fn with_headers_of(old: &Response, mut new: Response) -> Response {
    for (name, value) in old.headers() {
        let is_kept = !OF_THE_BODY.contains(name);
        if is_kept && !new.headers().get_all(name).iter().any(|kept| kept == value) {
            new.headers_mut().append(name.clone(), value.clone());
        }
    }
    let mut extensions = old.extensions().clone();
    extensions.remove::<Carried>();
    extensions.extend(std::mem::take(new.extensions_mut()));
    *new.extensions_mut() = extensions;
    new
}

fn bare(problem: &Problem, request_id: Option<&str>) -> Response {
    let inner = &problem.0;
    let mut document = Document {
        page: format!("{TYPE_BASE}{}", inner.code.name().to_ascii_lowercase()),
        title: inner.code.title(),
        status: inner.status.as_u16(),
        detail: inner.detail.clone(),
        code: inner.shown_as.unwrap_or(inner.code.name()),
        retryable: inner.code.retryable(),
        retry_after: inner.retry_after,
        member: inner.member.clone(),
        request_id: request_id.map(Box::from),
    };
    let mut response = Response::new(Body::from(document.written_with(&inner.more)));
    *response.status_mut() = inner.status;
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
    response.headers_mut().extend(inner.headers.clone());
    // For the log of requests.
    response.extensions_mut().insert(inner.code);
    if document.retryable && request_id.is_some() {
        document.retryable = false;
        document.retry_after = None;
        document.detail = Cow::Borrowed(STORED);
        let if_stored = IfStored(document.written_with(&inner.more).into());
        response.extensions_mut().insert(if_stored);
    }
    response
}

impl Document {
    /// The document as JSON, with more members at its end.
    fn written_with(&self, more: &[(&'static str, String)]) -> Vec<u8> {
        let mut written = serde_json::to_vec(self).expect("a problem can be written as JSON");
        for (name, value) in more {
            // Replaces the closing brace.
            written.pop();
            let (name, value) = (Value::from(*name), Value::from(value.as_str()));
            written.extend_from_slice(format!(",{name}:{value}}}").as_bytes());
        }
        written
    }
}

fn log(problem: &Problem, id: &RequestId, finality: Finality) {
    let inner = &problem.0;
    let Some(source) = &inner.source else {
        return;
    };
    let error_chain = error_chain(source.as_ref());
    let (error_code, request_id) = (inner.code.name(), id.as_str());
    // A key that was not claimed is not a failure, even if the handler has returned an error.
    let is_not_claimed = is_caused_by(source.as_ref(), StoreError::is_not_claimed);
    let is_failure = finality == Finality::Final && !is_not_claimed;
    if inner.status.is_server_error() && is_failure {
        tracing::error!(
            error_code,
            request_id,
            error = error_chain,
            "the request failed"
        );
    } else {
        tracing::debug!(
            error_code,
            request_id,
            error = error_chain,
            "the request was refused"
        );
    }
}

/// Whether `error`, or one of its causes, is such an error of the store.
fn is_caused_by(error: &(dyn Error + 'static), is_such: impl Fn(&StoreError) -> bool) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let store = error.downcast_ref::<StoreError>();
        if store.is_some_and(&is_such) {
            return true;
        }
        cause = error.source();
    }
    false
}
