//! Requests that are sent again while the server is not available.
//!
//! A key that is not valid is never in flight, so every other response counts, and the end of a
//! connection too: a server may refuse what is not HTTP in its own way.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    http::{Failure, Request, Response},
    subject::Subject,
    verdict::Stop,
};

/// How often a request is sent while the server is not available.
const ATTEMPTS: usize = 5;
/// How often a request is sent while the server asks to send it later. Nothing else is running, and
/// some profiles use the status of a request in flight for other refusals too.
const TRIES: usize = 5;
/// How long the probe waits between two tries.
const BETWEEN: Duration = Duration::from_millis(200);

/// Sends a request, which has to get a response.
pub(crate) async fn response(subject: &Subject<'_>, request: &Request) -> Result<Response, Stop> {
    available(subject, request)
        .await?
        .map_err(|failure| no_response(request, failure))
}

/// Sends a request, a few times if the server is not available.
pub(crate) async fn available(
    subject: &Subject<'_>,
    request: &Request,
) -> Result<Result<Response, Failure>, Stop> {
    let mut last = subject.exchange(request, None).await?;
    for _ in 1..ATTEMPTS {
        let is_temporary = last
            .as_ref()
            .is_ok_and(|answer| matches!(answer.status, 429 | 502..=504));
        if !is_temporary {
            break;
        }
        sleep(Duration::from_millis(100)).await;
        last = subject.exchange(request, None).await?;
    }
    match last {
        Ok(answer) => subject.unlimited(answer).map(Ok),
        Err(failure) => Ok(Err(failure)),
    }
}

/// Returns why a check ends whose request got no response.
pub(crate) fn no_response(request: &Request, failure: Failure) -> Stop {
    Stop::NoResponse {
        request: request.describe(),
        failure,
    }
}

/// Waits, except in a dry run.
pub(crate) async fn pause(subject: &Subject<'_>, time: Duration) {
    if !subject.plan.dry_run {
        sleep(time).await;
    }
}

/// Sends a request, a few times if the server asks to send it later: it may free a key a moment after
/// its response. A server that calls a mismatch "in flight" would be waited for longer in vain.
pub(crate) async fn patiently(subject: &Subject<'_>, request: &Request) -> Result<Response, Stop> {
    let mut answer = subject.send(request).await?;
    for _ in 1..TRIES {
        if !subject.is_temporary(&answer) {
            break;
        }
        pause(subject, BETWEEN).await;
        answer = subject.send(request).await?;
    }
    subject.unlimited(answer)
}
