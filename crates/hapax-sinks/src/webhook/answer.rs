//! Outcome of a webhook response.
//!
//! Only the status decides. The body is kept for display, up to 16 KiB and until the timeout of the
//! exchange. A longer body is cut off with its connection. A long, slow or incomplete body never
//! turns a success into a failure.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hapax::{
    Timestamp,
    limits::RESPONSE_HEAD_BYTES,
    retry,
    sink::{Outcome, Receipt, SinkError},
};
use http::{
    HeaderMap, Response, StatusCode,
    header::{DATE, HeaderName, RETRY_AFTER},
};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

/// Evaluates a response. The part of its body that is read by `deadline` is kept.
pub(super) async fn judge(
    response: Response<Incoming>,
    deadline: Instant,
    now: Timestamp,
) -> Outcome {
    let (parts, body) = response.into_parts();
    let receipt = Receipt {
        status: Some(parts.status.as_u16()),
        head: read_head(body, deadline).await,
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
    let retry_after = retry_after(&parts.headers, now);
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

async fn read_head(mut body: Incoming, deadline: Instant) -> Bytes {
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

/// The wait that the receiver asks for, relative to its own clock if it sends a `Date`.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    retry::retry_after(text(RETRY_AFTER)?, text(DATE), now)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// `Tue, 14 Nov 2023 22:13:20 GMT`.
    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn retry_after_is_seconds_or_a_date_by_the_receivers_clock() {
        check("120", None, Some(120));
        check("Tue, 14 Nov 2023 22:14:20 GMT", None, Some(60));
        let its_now = Some("Tue, 14 Nov 2023 22:14:10 GMT");
        check("Tue, 14 Nov 2023 22:14:20 GMT", its_now, Some(10));
        check("\u{e9}", None, None);
        assert_eq!(retry_after(&HeaderMap::new(), NOW), None);
    }

    #[track_caller]
    fn check(asked: &str, date: Option<&str>, expected: Option<u64>) {
        let mut headers = HeaderMap::new();
        let asked_value = HeaderValue::from_bytes(asked.as_bytes()).unwrap();
        headers.insert(RETRY_AFTER, asked_value);
        if let Some(date) = date {
            headers.insert(DATE, HeaderValue::from_str(date).unwrap());
        }
        let wait = retry_after(&headers, NOW).map(|wait| wait.as_secs());
        assert_eq!(wait, expected, "{asked}");
    }
}
