//! Responses of the upstream to protected requests: read to their end, and marked with what happens
//! to the key.

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse as _, Response},
};
use bytes::BytesMut;
use hapax_http::{Disposition, KeepInProgress, Problem, Verbatim, problem::UNAVAILABLE};
use http::{HeaderMap, StatusCode, Version, header::TRANSFER_ENCODING, response::Parts};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use crate::{config, headers::remove_hop_by_hop, unknown::Reason};

/// Minimum size of the second and later segments of a body, in bytes.
const SEGMENT: usize = 64 * 1024;

/// A complete response.
pub(super) struct Complete {
    pub(super) parts: Parts,
    pub(super) body: Bytes,
}

/// A response that is not known to be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Incomplete {
    pub(super) reason: Reason,
    /// The status, if the head has arrived.
    pub(super) status: Option<StatusCode>,
    /// The number of bytes of the body that have arrived.
    pub(super) received: u64,
}

impl Incomplete {
    /// No head has arrived.
    pub(super) fn headless(reason: Reason) -> Self {
        Self {
            reason,
            status: None,
            received: 0,
        }
    }
}

/// Reads a response to its end. Trailers are dropped, because they are not stored.
pub(super) async fn complete(
    response: http::Response<Incoming>,
    settings: &config::Route,
    deadline: Instant,
) -> Result<Complete, Incomplete> {
    let is_delimited = is_delimited(&response);
    let (mut parts, mut body) = response.into_parts();
    let status = parts.status;
    // One buffer that grows would be copied each time.
    let (mut read, mut received) = (Vec::new(), 0);
    let incomplete = |reason, received: usize| Incomplete {
        reason,
        status: Some(status),
        received: received as u64,
    };
    if status.is_informational() {
        return Err(incomplete(Reason::Protocol, received));
    }
    loop {
        let next = next_chunk(&mut body, deadline).await;
        let Some(chunk) = next.map_err(|reason| incomplete(reason, received))? else {
            break;
        };
        if received + chunk.len() > settings.response_max {
            return Err(incomplete(Reason::TooLarge, received));
        }
        received += chunk.len();
        append(&mut read, &chunk);
    }
    // hyper ends the body of a stream that is reset as cancelled, as if it were complete.
    if parts.version == Version::HTTP_2 && !body.is_end_stream() {
        return Err(incomplete(Reason::Cut, received));
    }
    if !is_delimited && !settings.accept_close_delimited {
        return Err(incomplete(Reason::NoLength, received));
    }
    remove_hop_by_hop(&mut parts.headers, &[]);
    Ok(Complete {
        parts,
        body: joined(read),
    })
}

/// Reads the next bytes of a body. Returns `None` at its end. Trailers are skipped.
pub(super) async fn next_chunk(
    body: &mut Incoming,
    deadline: Instant,
) -> Result<Option<Bytes>, Reason> {
    loop {
        let frame = timeout_at(deadline, body.frame()).await;
        match frame.map_err(|_| Reason::Timeout)? {
            None => return Ok(None),
            Some(Err(_)) => return Err(Reason::Cut),
            Some(Ok(frame)) => {
                if let Ok(chunk) = frame.into_data() {
                    return Ok(Some(chunk));
                }
            }
        }
    }
}

/// Appends a chunk to the segments of a body. Most bodies have one.
fn append(segments: &mut Vec<BytesMut>, chunk: &[u8]) {
    match segments.last_mut() {
        Some(last) if last.capacity() - last.len() >= chunk.len() => last.extend_from_slice(chunk),
        last => {
            let capacity = if last.is_some() {
                SEGMENT.max(chunk.len())
            } else {
                chunk.len()
            };
            let mut next = BytesMut::with_capacity(capacity);
            next.extend_from_slice(chunk);
            segments.push(next);
        }
    }
}

/// The segments of a body as one.
fn joined(mut segments: Vec<BytesMut>) -> Bytes {
    match segments.len() {
        0 | 1 => segments.pop().unwrap_or_default().freeze(),
        _ => segments.concat().into(),
    }
}

/// Whether the end of the body is marked. Otherwise the body ends with its connection, and a failure
/// of the connection looks the same.
fn is_delimited(response: &http::Response<Incoming>) -> bool {
    let is_http1 = response.version() < Version::HTTP_2;
    let body = response.body();
    !is_http1
        || body.is_end_stream()
        || body.size_hint().exact().is_some()
        || is_chunked(response.headers())
}

/// Whether the last coding is `chunked`. After any other one, the body ends with its connection.
fn is_chunked(headers: &HeaderMap) -> bool {
    let last = headers.get_all(TRANSFER_ENCODING).iter().next_back();
    let last = last.and_then(|codings| codings.to_str().ok()?.rsplit(',').next());
    last.is_some_and(|coding| coding.trim().eq_ignore_ascii_case("chunked"))
}

impl Complete {
    pub(super) fn status(&self) -> StatusCode {
        self.parts.status
    }

    pub(super) fn length(&self) -> u64 {
        self.body.len() as u64
    }

    /// The response as it is.
    pub(super) fn verbatim(self) -> Response {
        let mut response = Response::from_parts(self.parts, Body::from(self.body));
        response.extensions_mut().insert(Verbatim);
        response
    }

    /// The response as it is, to be stored under the key.
    pub(super) fn stored(self) -> Response {
        marked(self.verbatim(), Disposition::WithEffect)
    }

    /// The response as it is. The key is released.
    pub(super) fn released(self) -> Response {
        marked(self.verbatim(), Disposition::Release)
    }
}

/// Keeps the key in progress.
pub(super) fn keep_in_progress(mut response: Response) -> Response {
    response.extensions_mut().insert(KeepInProgress);
    response
}

/// The response to a request of which nothing was sent. The key is released, unless the request was
/// sent before.
pub(super) fn not_sent(problem: Problem, was_sent: bool) -> Response {
    if was_sent {
        keep_in_progress(problem.into_response())
    } else {
        marked(problem.into_response(), Disposition::Release)
    }
}

/// The response to a completer. The key is released, so that a retry of the client is sent.
pub(super) fn released(why: &'static str) -> Response {
    let problem = Problem::new(UNAVAILABLE).detail(why);
    marked(problem.into_response(), Disposition::Release)
}

fn marked(mut response: Response, disposition: Disposition) -> Response {
    response.extensions_mut().insert(disposition);
    response
}
