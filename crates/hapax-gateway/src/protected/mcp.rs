//! Calls of tools (MCP) with the upstream: what is sent, and what is stored of the response.
//!
//! The layer sees the part of a call that belongs to its fingerprint; the server receives the
//! message as the client has sent it. Only a JSON-RPC response with the id of the call is stored. A
//! stream of events ends with it, and the messages before it go to the client while the stream runs.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use hapax_http::header::IDEMPOTENCY_KEY;
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE},
};
use hyper::body::Incoming;
use tokio::{sync::mpsc::UnboundedSender, time::Instant};

use super::response::{Complete, Incomplete, complete, next_chunk};
use crate::{
    config,
    headers::remove_hop_by_hop,
    mcp::{
        OnError, RequestId, ResponseKind, StreamCollector, StreamError, StreamState, check_response,
    },
    unknown::Reason,
};

/// Servers need not answer clients that do not accept both.
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
/// A compressed response could not be read.
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The session of the first attempt, which a retry need not have.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Statuses with which the transport refuses a message before a tool can run: no session, or a
/// version that the server does not know (400), an origin (403), a session that has ended (404), and
/// a method, media types or a length that the server does not accept.
const REFUSALS: [u16; 7] = [400, 403, 404, 405, 406, 413, 415];

/// A call of a tool, in the extensions of its request.
pub(crate) struct Call {
    pub(crate) id: RequestId,
    /// The message as the client has sent it.
    pub(crate) message: Bytes,
    /// Takes the messages of the server before its response. At most `response_max` bytes are sent.
    pub(crate) messages: Option<UnboundedSender<Bytes>>,
}

impl Call {
    /// The body of the request for the server, with its headers.
    pub(super) fn restore(&self, headers: &mut HeaderMap) -> Body {
        headers.remove(IDEMPOTENCY_KEY);
        headers.insert(ACCEPT, BOTH);
        headers.insert(ACCEPT_ENCODING, IDENTITY);
        Body::from(self.message.clone())
    }

    fn pass_on(&self, messages: Vec<u8>) {
        let sender = self.messages.as_ref().filter(|_| !messages.is_empty());
        if let Some(sender) = sender
            && sender.send(messages.into()).is_err()
        {
            tracing::debug!("the client of a call has disconnected");
        }
    }
}

/// What a complete response says about its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The service has handled the request.
    Answered,
    /// The service has not acted on the request.
    NothingHappened,
    /// The service may have acted on the request.
    Unknown,
}

impl Outcome {
    /// The outcome that the response to a call was found to have, or else that of the status.
    pub(super) fn of(complete: &Complete, settings: &config::Route) -> Self {
        let found = complete.parts.extensions.get::<Self>().copied();
        found.unwrap_or_else(|| {
            let status = complete.status();
            if settings.nothing_happened.contains(&status.as_u16()) {
                Self::NothingHappened
            } else if is_failure(status) {
                Self::Unknown
            } else {
                Self::Answered
            }
        })
    }

    fn of_response(answer: ResponseKind, settings: &config::Route) -> Self {
        let ResponseKind::Error(code) = answer else {
            return Self::Answered;
        };
        let is_nothing = code.is_some_and(|code| settings.mcp.nothing_happened.contains(&code));
        match settings.mcp.errors {
            _ if is_nothing => Self::NothingHappened,
            OnError::Store => Self::Answered,
            OnError::Unknown => Self::Unknown,
        }
    }
}

/// Reads a response to its end; that to a call, to the JSON-RPC response in it.
pub(super) async fn read(
    response: http::Response<Incoming>,
    call: Option<&Arc<Call>>,
    settings: &config::Route,
    deadline: Instant,
) -> Result<Complete, Incomplete> {
    let Some(call) = call else {
        return complete(response, settings, deadline).await;
    };
    let media_type = response.headers().get(CONTENT_TYPE);
    let is_stream = media_type.is_some_and(|it| {
        it.as_bytes()
            .to_ascii_lowercase()
            .starts_with(b"text/event-stream")
    });
    let complete = if is_stream && response.status().is_success() {
        Box::pin(stream(response, call, settings.response_max, deadline)).await?
    } else {
        Box::pin(complete(response, settings, deadline)).await?
    };
    checked(complete, call, settings)
}

/// Reads a stream up to the response to the call.
async fn stream(
    response: http::Response<Incoming>,
    call: &Call,
    bytes_max: usize,
    deadline: Instant,
) -> Result<Complete, Incomplete> {
    let (mut parts, mut body) = response.into_parts();
    let status = parts.status;
    let incomplete = |reason, received: u64| Incomplete {
        reason,
        status: Some(status),
        received,
    };
    let mut collector = StreamCollector::new(call.id.clone(), bytes_max);
    let mut received = 0;
    loop {
        let next = next_chunk(&mut body, deadline).await;
        let Some(chunk) = next.map_err(|reason| incomplete(reason, received))? else {
            break;
        };
        received += chunk.len() as u64;
        let state = collector.push(&chunk);
        let state = state.map_err(|error| incomplete(reason(error), received))?;
        call.pass_on(collector.take_messages());
        if state == StreamState::Complete {
            break;
        }
    }
    let message = collector.finish();
    let message = message.map_err(|error| incomplete(reason(error), received))?;
    remove_hop_by_hop(&mut parts.headers, &[]);
    parts.headers.insert(CONTENT_TYPE, JSON);
    Ok(Complete {
        parts,
        body: message.into(),
    })
}

fn reason(error: StreamError) -> Reason {
    match error {
        StreamError::TooLarge => Reason::TooLarge,
        StreamError::Incomplete => Reason::Cut,
        _ => Reason::Protocol,
    }
}

/// Finds out what the response to a call says. Fails if it says nothing.
fn checked(
    mut complete: Complete,
    call: &Call,
    settings: &config::Route,
) -> Result<Complete, Incomplete> {
    let status = complete.status();
    let outcome = match check_response(&complete.body, &call.id) {
        Ok(answer) if !is_failure(status) => Outcome::of_response(answer, settings),
        _ if status.is_success() => {
            return Err(Incomplete {
                reason: Reason::Protocol,
                status: Some(status),
                received: complete.length(),
            });
        }
        _ if is_refusal(status, settings) => Outcome::NothingHappened,
        _ => Outcome::Unknown,
    };
    complete.parts.headers.remove(SESSION);
    complete.parts.extensions.insert(outcome);
    Ok(complete)
}

/// Whether a status says that the service has failed. One that HTTP does not define, above 599, counts as
/// such (RFC 9110, section 15).
fn is_failure(status: StatusCode) -> bool {
    status.as_u16() >= 500
}

fn is_refusal(status: StatusCode, settings: &config::Route) -> bool {
    let status = status.as_u16();
    REFUSALS.contains(&status) || settings.nothing_happened.contains(&status)
}
