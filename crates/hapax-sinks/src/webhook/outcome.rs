//! Outcome of a webhook response.
//!
//! Only the status decides. The body is kept for display, up to 16 KiB and until the timeout of the
//! exchange. A longer body is cut off with its connection. A long, slow or incomplete body never
//! turns a success into a failure. Secrets that the endpoint sends back are masked.

use bytes::{Bytes, BytesMut};
use hapax::{
    Timestamp,
    limits::RESPONSE_HEAD_BYTES,
    retry,
    sink::{Outcome, Receipt, SinkError},
};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::echo;

/// Evaluates a response. The part of its body that is read by `deadline` is kept, without `secrets`.
pub(super) async fn outcome_of(
    response: Response<Incoming>,
    deadline: Instant,
    now: Timestamp,
    secrets: &[&str],
) -> Outcome {
    let (parts, body) = response.into_parts();
    let receipt = Receipt {
        status: Some(parts.status.as_u16()),
        head: echo::mask(read_head(body, deadline).await, secrets),
    };
    let refused = Refused(parts.status);
    let error_type = match parts.status.as_u16() {
        200..=299 => return Ok(receipt),
        300..=399 => "redirect",
        410 => {
            let source = refused.into();
            return Err(SinkError::Gone { receipt, source });
        }
        400..=499 => "status_4xx",
        500..=599 => "status_5xx",
        _ => "status_other",
    };
    let header = |name| parts.headers.get(name)?.to_str().ok();
    let retry_after = retry::retry_after(header, now);
    let source = refused.into();
    if is_about_the_event(parts.status) {
        return Err(SinkError::Declined {
            retry_after,
            error_type,
            receipt,
            source,
        });
    }
    Err(SinkError::Unavailable {
        retry_after,
        error_type,
        receipt,
        source,
    })
}

/// Whether the status says that the endpoint has read the event and objects to its content, so that
/// another event may succeed.
fn is_about_the_event(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 409 | 413 | 415 | 422 | 431)
}

/// The status of a response that was not a success.
#[derive(Debug, thiserror::Error)]
#[error("endpoint responded with {0}")]
struct Refused(StatusCode);

/// Reads the beginning of a body, until it is long enough or the time is up.
pub(crate) async fn read_head(mut body: Incoming, deadline: Instant) -> Bytes {
    let mut head = BytesMut::new();
    while head.len() < RESPONSE_HEAD_BYTES {
        let Ok(Some(Ok(frame))) = timeout_at(deadline, body.frame()).await else {
            break;
        };
        let Ok(chunk) = frame.into_data() else {
            continue;
        };
        let room = RESPONSE_HEAD_BYTES - head.len();
        head.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    head.freeze()
}
