//! Group `lost`: the response of a request that was executed does not arrive, and the client sends
//! the request again.
//!
//! The connection is cut at a byte of the response. Its length is estimated from the response to an
//! earlier request. A response that was cut cannot be compared with that of the retry, so the count
//! of effects is the judge.

use std::time::Duration;

use crate::{
    checks::{Check, Need, available::pause, client_gone::Gone},
    http::{Cut, Failure, Request, Response},
    subject::Subject,
    verdict::{Judge, Judged, Judgement, Stop},
};

/// How long a client waits for a slow response before it gives up.
const CLIENT_PATIENCE: Duration = Duration::from_millis(300);
/// How long the effect of a request that a client has given up may take to appear.
const STRAGGLER: Duration = Duration::from_millis(300);

/// When a client that has closed the connection sends the request again.
#[derive(Clone, Copy, Debug)]
enum Retry {
    /// At once: the first request still runs, or the retry overtakes it.
    AtOnce,
    /// When the effect of the first request is counted: the retry cannot overtake it.
    WhenCounted,
}

/// The rounds of `lost.client-cut-then-retry`.
const RETRIES: [Retry; 4] = [
    Retry::AtOnce,
    Retry::WhenCounted,
    Retry::AtOnce,
    Retry::WhenCounted,
];

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "lost.at-start",
        asks: "A response is lost before its first byte: the retry succeeds, and there is one effect.",
        needs: &[Need::Effects],
        run: |subject| Box::pin(cut_at(subject, |_| Some(0))),
    },
    Check {
        id: "lost.first-byte",
        asks: "A response is lost after its first byte: the retry succeeds, and there is one effect.",
        needs: &[Need::Effects],
        run: |subject| Box::pin(cut_at(subject, |_| Some(1))),
    },
    Check {
        id: "lost.in-head",
        asks: "A response is lost in the middle of its head: the retry succeeds, and there is one effect.",
        needs: &[Need::Effects],
        run: |subject| Box::pin(cut_at(subject, |size| Some(size.head / 2))),
    },
    Check {
        id: "lost.in-body",
        asks: "A response is lost in the middle of its body: the retry succeeds, and there is one effect.",
        needs: &[Need::Effects],
        run: |subject| Box::pin(cut_at(subject, Size::in_body)),
    },
    Check {
        id: "lost.last-byte",
        asks: "A response is lost at its last byte: the retry succeeds, and there is one effect.",
        needs: &[Need::Effects],
        run: |subject| Box::pin(cut_at(subject, |size| Some(size.head + size.body - 1))),
    },
    Check {
        id: "lost.client-cut-then-retry",
        asks: "A client closes the connection as soon as it has sent a request: the retry succeeds, and there is \
               one effect.",
        needs: &[Need::Effects],
        run: |subject| Box::pin(client_cut(subject)),
    },
    Check {
        id: "lost.client-timeout",
        asks: "A client gives up while its request runs and sends it again at once: the retry succeeds, and there \
               is one effect.",
        needs: &[Need::Effects, Need::Slow],
        run: |subject| Box::pin(client_timeout(subject)),
    },
];

/// The size of a response in bytes, as it goes over the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    head: usize,
    body: usize,
}

impl Size {
    /// Estimates the size of a response. The reason phrase and the chunks are not known.
    fn of(answer: &Response) -> Self {
        let reason = match answer.status {
            201 => "Created",
            202 => "Accepted",
            204 => "No Content",
            _ => "OK",
        };
        let line = "HTTP/1.1 201 \r\n".len() + reason.len();
        let fields: usize = answer
            .fields
            .iter()
            .map(|field| field.name.len() + field.value.len() + ": \r\n".len())
            .sum();
        // Members of the body may have been left out for comparisons.
        let length = answer
            .header("content-length")
            .and_then(|it| it.trim().parse().ok())
            .unwrap_or(answer.body.len());
        let framing = if answer.header("transfer-encoding").is_some() && length > 0 {
            format!("{length:x}\r\n\r\n0\r\n\r\n").len()
        } else {
            0
        };
        Self {
            head: line + fields + "\r\n".len(),
            body: length + framing,
        }
    }

    /// Returns the middle of the body, if there is a body.
    fn in_body(self) -> Option<usize> {
        (self.body > 0).then(|| self.head + self.body / 2)
    }
}

/// Cuts the response to a request at a byte and judges the retry.
async fn cut_at(subject: &Subject<'_>, at: fn(Size) -> Option<usize>) -> Judged {
    let measured = subject.accepted().await?;
    let Some(bytes) = at(Size::of(&measured.answer)) else {
        return Ok(Judgement::skipped("the response has no body"));
    };
    let before = subject.effects().await?;
    let request = subject.request(&subject.key(), &subject.payload());
    let lost = subject
        .exchange(&request, Some(Cut::Response(bytes)))
        .await?;
    reached(&request, lost)?;
    judge_retry(subject, &request, before, Duration::ZERO).await
}

/// Repeats the cut, so that its outcome does not depend on when one request runs.
async fn client_cut(subject: &Subject<'_>) -> Judged {
    subject.accepted().await?;
    let mut judge = Judge::new();
    for retry in RETRIES {
        let gone = Gone::send(subject, &subject.operation.body).await?;
        match retry {
            Retry::AtOnce => {}
            Retry::WhenCounted => gone.counted(subject).await?,
        }
        require_retry(subject, &mut judge, &gone.request).await?;
        pause(subject, STRAGGLER).await;
        subject.require_effects(&mut judge, gone.before, 1).await?;
        if judge.violated() {
            break;
        }
    }
    Ok(judge.judgement())
}

async fn client_timeout(subject: &Subject<'_>) -> Judged {
    let Some(template) = &subject.operation.slow else {
        return Ok(Judgement::unknown(
            "the plan has no slow payload (slow-body)",
        ));
    };
    let before = subject.effects().await?;
    let request = subject.request(&subject.key(), &subject.filled(template));
    match subject
        .exchange_within(&request, None, CLIENT_PATIENCE)
        .await?
    {
        // A dry run has a response at once.
        Ok(_) if !subject.plan.dry_run => {
            return Ok(Judgement::unknown(format!(
                "the slow payload was finished within {CLIENT_PATIENCE:?}, expected a second or more"
            )));
        }
        Ok(_) | Err(Failure::Timeout(_)) => {}
        failed => reached(&request, failed)?,
    }
    judge_retry(subject, &request, before, STRAGGLER).await
}

/// Requires that the request got to the server, before its response was lost.
fn reached(request: &Request, lost: Result<Response, Failure>) -> Result<(), Stop> {
    match lost {
        Ok(_) | Err(Failure::Cut) => Ok(()),
        Err(failure) => Err(Stop::NoResponse {
            request: request.describe(),
            failure,
        }),
    }
}

/// Requires that a retry succeeds, that a second one gets the same, and that there is one effect.
async fn judge_retry(
    subject: &Subject<'_>,
    request: &Request,
    before: Option<u64>,
    straggler: Duration,
) -> Judged {
    let mut judge = Judge::new();
    require_retry(subject, &mut judge, request).await?;
    pause(subject, straggler).await;
    subject.require_effects(&mut judge, before, 1).await?;
    Ok(judge.judgement())
}

/// Requires that a retry succeeds, and that a second one gets the same.
async fn require_retry(
    subject: &Subject<'_>,
    judge: &mut Judge,
    request: &Request,
) -> Result<(), Stop> {
    let retry = subject.settled(request).await?;
    if retry.is_success() {
        let again = subject.settled(request).await?;
        judge.require(again.is_like(&retry), || {
            format!(
                "the retry got {}, a second one got {}",
                retry.describe(),
                again.describe()
            )
        });
    } else {
        judge.require(false, || format!("the retry got {}", retry.describe()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Field;

    fn answer(status: u16, fields: &[(&str, &str)], body: &str) -> Response {
        Response {
            status,
            fields: fields
                .iter()
                .map(|(name, value)| Field {
                    name: (*name).to_owned(),
                    value: value.as_bytes().to_vec(),
                })
                .collect(),
            body: body.as_bytes().to_vec(),
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn the_size_is_that_on_the_wire() {
        let size = Size::of(&answer(201, &[("Content-Length", "2")], "{}"));
        let head = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n".len();
        assert_eq!(size, Size { head, body: 2 });
        assert_eq!(size.in_body(), Some(head + 1));
    }

    #[test]
    fn chunks_are_part_of_the_size() {
        let size = Size::of(&answer(200, &[("Transfer-Encoding", "chunked")], "{}"));
        assert_eq!(size.body, "2\r\n{}\r\n0\r\n\r\n".len());
    }

    #[test]
    fn a_response_without_a_body_has_no_middle_of_it() {
        assert_eq!(Size::of(&answer(204, &[], "")).in_body(), None);
    }
}
