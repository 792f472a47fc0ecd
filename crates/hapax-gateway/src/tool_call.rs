//! Requests of routes with `protocol = "mcp"`: reads the JSON-RPC message, finds the key of a call, and
//! gives the client a JSON-RPC response with the id of its message.
//!
//! The transport of MCP answers a request with a JSON object or a stream of events. So a problem of the
//! gateway is a JSON-RPC error with the status 200, with the problem in `data`. Only a message whose id
//! cannot be returned is refused with 400 or 413. Messages of the server before its response go to the
//! client at once, if it accepts a stream; they may be requests that the server waits for.

use std::{convert::Infallible, future::Future, pin::Pin, sync::Arc};

use axum::{
    body::{Body, Bytes, HttpBody as _, to_bytes},
    response::Response,
};
use futures_util::{future::Either, stream};
use hapax_http::{
    Code,
    header::{IDEMPOTENCY_KEY, IDEMPOTENCY_STATUS},
    problem::{BODY_INCOMPLETE, BODY_TOO_LARGE, KEY_MISSING},
};
use http::{
    HeaderMap, HeaderValue, Request, StatusCode,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::Instant,
};

use crate::{
    config::{KeyRule, Route},
    mcp::{self, INVALID_PARAMS, INVALID_REQUEST, McpMessage, PARSE_ERROR, RequestId},
    protected::{Call, timed},
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
/// The header with the revision of the protocol.
const VERSION: &str = "mcp-protocol-version";
/// The code of a JSON-RPC error if the response of the server is not one of JSON-RPC.
const INTERNAL_ERROR: i32 = -32603;

/// The future of a protected call.
type Calling = Pin<Box<dyn Future<Output = Response> + Send>>;

/// The client of a protected call.
pub(crate) struct Caller {
    id: RequestId,
    /// Whether the client accepts only a stream.
    needs_stream: bool,
    /// The messages of the server before its response, if the client accepts a stream.
    messages: Option<UnboundedReceiver<Bytes>>,
}

/// Reads the message in a POST. A call with a key is returned with its client, as the layer has to
/// see it; any other message as it was sent.
///
/// # Errors
/// The response to a message that is not passed on.
pub(crate) async fn read(
    request: Request<Body>,
    route: &Route,
    end: Instant,
) -> Result<(Request<Body>, Option<Caller>), Response> {
    let (mut parts, body) = request.into_parts();
    let message = collect(body, route.body_max.min(route.json_max), end).await?;
    let version = parts.headers.get(VERSION);
    let version = version.and_then(|version| version.to_str().ok());
    let call = match mcp::parse(&message, version, &route.mcp) {
        Ok(McpMessage::ToolCall(call)) => call,
        Ok(McpMessage::Other) => return Ok((Request::from_parts(parts, message.into()), None)),
        Err(error) => {
            let id = mcp::id_of(&message);
            return Err(refused(id.as_ref(), error.code(), &text_of(error), None));
        }
    };
    let Some(key) = call.key else {
        let has_header = parts.headers.contains_key(IDEMPOTENCY_KEY);
        if has_header || route.key == KeyRule::Required {
            return Err(without_key(&call.id, route));
        }
        return Ok((Request::from_parts(parts, message.into()), None));
    };
    if let Ok(key) = HeaderValue::from_str(&key.quoted()) {
        parts.headers.insert(IDEMPOTENCY_KEY, key);
    }
    // The layer receives another body than the server.
    parts.headers.remove(CONTENT_LENGTH);
    let accepted = Accepted::of(&parts.headers);
    let (sender, receiver) = unbounded_channel();
    let caller = Caller {
        id: call.id.clone(),
        needs_stream: accepted.stream && !accepted.json,
        messages: accepted.stream.then_some(receiver),
    };
    parts.extensions.insert(Arc::new(Call {
        id: call.id,
        message,
        messages: accepted.stream.then_some(sender),
    }));
    let request = Request::from_parts(parts, call.fingerprinted.into());
    Ok((request, Some(caller)))
}

impl Caller {
    /// Waits for the response to a call. If the server sends messages before, the response begins
    /// with them.
    pub(crate) async fn respond(
        mut self,
        calling: impl Future<Output = Response> + Send + 'static,
    ) -> Response {
        let mut calling: Calling = Box::pin(calling);
        let Some(mut messages) = self.messages.take() else {
            let response = calling.await;
            return self.answer(response).await;
        };
        // The order decides if both are ready: the server sent its messages first.
        let first = tokio::select! {
            biased;
            Some(first) = messages.recv() => first,
            response = &mut calling => return self.answer(response).await,
        };
        let streamed = Streamed {
            caller: self,
            first: Some(first),
            messages,
            calling: Some(calling),
        };
        let body = Body::from_stream(stream::unfold(streamed, Streamed::next));
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, STREAM);
        response.headers_mut().insert(CACHE_CONTROL, NO_CACHE);
        response
    }

    /// The response for the client: a stored one with the id of the client's message, or a problem
    /// as a JSON-RPC error. A response of the server that is not stored stays as it is.
    async fn answer(&self, response: Response) -> Response {
        let is_stored = response.headers().contains_key(IDEMPOTENCY_STATUS);
        let is_problem = response.extensions().get::<Code>().is_some();
        if !is_stored && !is_problem {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        let message = if is_stored {
            mcp::replay(&body, &self.id).unwrap_or_else(|error| {
                let message = format!("the stored response cannot be replayed: {error}");
                mcp::error_response(Some(&self.id), INTERNAL_ERROR, &message, None)
            })
        } else {
            let status = std::mem::replace(&mut parts.status, StatusCode::OK);
            problem(&self.id, status, &body)
        };
        let (media_type, body) = if self.needs_stream {
            (STREAM, mcp::event(&message))
        } else {
            (JSON, message)
        };
        parts.headers.remove(CONTENT_LENGTH);
        parts.headers.insert(CONTENT_TYPE, media_type);
        Response::from_parts(parts, body.into())
    }

    /// The response as the last event of a stream.
    async fn event(&self, response: Response) -> Bytes {
        let response = self.answer(response).await;
        let status = response.status();
        let media_type = response.headers().get(CONTENT_TYPE);
        let is_event = media_type.is_some_and(|it| it == "text/event-stream");
        let body = to_bytes(response.into_body(), usize::MAX).await;
        let body = body.unwrap_or_default();
        if is_event {
            return body;
        }
        if mcp::check_response(&body, &self.id).is_ok() {
            return mcp::event(&body).into();
        }
        let message = format!("the server responded with the status {status}");
        mcp::event(&mcp::error_response(
            Some(&self.id),
            INTERNAL_ERROR,
            &message,
            None,
        ))
        .into()
    }
}

/// A response that has begun before the call has ended.
struct Streamed {
    caller: Caller,
    first: Option<Bytes>,
    messages: UnboundedReceiver<Bytes>,
    /// Absent after the response.
    calling: Option<Calling>,
}

impl Streamed {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if let Some(first) = self.first.take() {
            return Some((Ok(first), self));
        }
        let calling = self.calling.as_mut()?;
        let next = tokio::select! {
            biased;
            Some(message) = self.messages.recv() => Either::Left(message),
            response = calling => Either::Right(response),
        };
        let bytes = match next {
            Either::Left(message) => message,
            Either::Right(response) => {
                self.calling = None;
                self.caller.event(response).await
            }
        };
        Some((Ok(bytes), self))
    }
}

/// The media types that a client accepts.
struct Accepted {
    json: bool,
    stream: bool,
}

impl Accepted {
    fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).iter();
        let text: Vec<String> = values
            .filter_map(|value| Some(value.to_str().ok()?.to_ascii_lowercase()))
            .collect();
        let names = |media_type: &str| text.iter().any(|value| value.contains(media_type));
        let stream = names("text/event-stream");
        let json = ["application/json", "application/*", "*/*"];
        Self {
            json: !stream || json.into_iter().any(names),
            stream,
        }
    }
}

/// Reads a body up to its bound.
async fn collect(body: Body, max: u64, end: Instant) -> Result<Bytes, Response> {
    let too_large = || {
        let text = format!("the message is longer than {max} bytes");
        let mut response = refused(None, INVALID_REQUEST, &text, Some(BODY_TOO_LARGE));
        *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        response
    };
    if body.size_hint().lower() > max {
        return Err(too_large());
    }
    let bound = usize::try_from(max).unwrap_or(usize::MAX);
    match Limited::new(timed(body, end), bound).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => {
            tracing::debug!(%error, "a message did not arrive");
            let text = "the message ended before it was complete, or did not arrive in time";
            Err(refused(None, PARSE_ERROR, text, Some(BODY_INCOMPLETE)))
        }
    }
}

/// The refusal of a call whose route reads its key from `_meta`.
fn without_key(id: &RequestId, route: &Route) -> Response {
    let member = route.mcp.keys.first().map_or("", String::as_str);
    let text = format!(
        "a call of a tool needs an idempotency key on this route: add the member {member:?} to \
         params._meta, with a string that is the same in every attempt of the call"
    );
    refused(Some(id), INVALID_PARAMS, &text, Some(KEY_MISSING))
}

/// A JSON-RPC error for a message that was not passed on.
fn refused(id: Option<&RequestId>, code: i32, text: &str, problem: Option<Code>) -> Response {
    let data = problem.map(|problem| {
        let retryable = problem.retryable();
        serde_json::json!({ "code": problem.name(), "retryable": retryable }).to_string()
    });
    let message = mcp::error_response(id, code, text, data.as_deref());
    let mut response = Response::new(Body::from(message));
    if id.is_none() {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A problem of the gateway as a JSON-RPC error. Its code is the status of the problem, which is
/// outside of the codes that JSON-RPC reserves.
fn problem(id: &RequestId, status: StatusCode, document: &[u8]) -> Vec<u8> {
    let document: serde_json::Value = serde_json::from_slice(document).unwrap_or_default();
    let text = document["detail"].as_str().filter(|text| !text.is_empty());
    let text = text.or_else(|| document["title"].as_str());
    let text = text.unwrap_or("the gateway cannot handle the call");
    let (code, data) = (i32::from(status.as_u16()), document.to_string());
    mcp::error_response(Some(id), code, text, Some(&data))
}

/// An error with its cause.
fn text_of(error: mcp::McpError) -> String {
    hapax::telemetry::error_chain(&error)
}
