//! Group `broken`: requests that do not arrive as a whole, and clients that do not wait.
//!
//! A request whose body ends early has no effect, and its key stays free for the complete request.
//! A request that arrived as a whole has one effect, whether or not its client still waits.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    checks::{Check, Need, client_gone::Gone, proof::require_bodies},
    http::{Cut, Failure, Framing, Request},
    plan::Template,
    subject::Subject,
    verdict::{Judge, Judged, Judgement, Stop},
};

/// How long the server gets to notice the end of a connection, before effects are counted.
const NOTICED: Duration = Duration::from_millis(300);
/// By how many bytes the declared length is too long.
const TOO_LONG: usize = 10;

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "broken.body-cut",
        asks: "A request whose body is cut half-way has no effect, and its key is free.",
        needs: &[Need::Effects],
        run: |subject| Box::pin(body_cut(subject)),
    },
    Check {
        id: "broken.length-too-long",
        asks: "A request whose declared length is longer than its body has no effect, and its key is free.",
        needs: &[Need::Effects],
        run: |subject| Box::pin(length_too_long(subject)),
    },
    Check {
        id: "broken.key-free",
        asks: "After a broken request, the complete request with the same key succeeds and is replayed.",
        needs: &[],
        run: |subject| Box::pin(key_free(subject)),
    },
    Check {
        id: "broken.client-gone",
        asks: "If the client closes the connection after the request, a retry succeeds, there is one effect, and \
               the next retry is a replay.",
        needs: &[Need::Effects],
        run: |subject| Box::pin(client_gone(subject)),
    },
    Check {
        id: "broken.client-gone-slow",
        asks: "If the client closes the connection while a slow request runs, a retry succeeds, there is one \
               effect, and the next retry is a replay.",
        needs: &[Need::Slow, Need::Effects],
        run: |subject| Box::pin(client_gone_slow(subject)),
    },
];

/// A complete request with the broken form of it.
struct Broken {
    complete: Request,
    sent: Request,
    cut: Cut,
    what: &'static str,
}

/// Returns a new request that is cut in the middle of its body, if it has one.
fn cut_in_body(subject: &Subject<'_>) -> Option<Broken> {
    let complete = subject.request(&subject.key(), &subject.payload());
    let half = complete.body.len() / 2;
    (half > 0).then(|| Broken {
        sent: complete.clone(),
        complete,
        cut: Cut::RequestBody(half),
        what: "the body was cut half-way",
    })
}

/// Returns a new request whose declared length is too long. The connection ends after the body.
fn declared_too_long(subject: &Subject<'_>) -> Broken {
    let complete = subject.request(&subject.key(), &subject.payload());
    Broken {
        sent: complete.clone().framing(Framing::LengthTooLong(TOO_LONG)),
        cut: Cut::RequestBody(complete.body.len()),
        complete,
        what: "the declared length was too long",
    }
}

async fn body_cut(subject: &Subject<'_>) -> Judged {
    match cut_in_body(subject) {
        Some(broken) => no_effect(subject, &broken).await,
        None => Ok(Judgement::skipped("the request has no body")),
    }
}

async fn length_too_long(subject: &Subject<'_>) -> Judged {
    no_effect(subject, &declared_too_long(subject)).await
}

/// Requires that a broken request has no effect, and the complete one has one.
async fn no_effect(subject: &Subject<'_>, broken: &Broken) -> Judged {
    let before = subject.effects().await?;
    send_and_cut(subject, &broken.sent, broken.cut).await?;
    pause(subject).await;
    let mut judge = Judge::new();
    subject.require_effects(&mut judge, before, 0).await?;
    if judge.violated() {
        return Ok(judge.judgement());
    }
    completed(subject, &mut judge, broken).await?;
    subject.require_effects(&mut judge, before, 1).await?;
    Ok(judge.judgement())
}

async fn key_free(subject: &Subject<'_>) -> Judged {
    let all = [cut_in_body(subject), Some(declared_too_long(subject))];
    let mut judge = Judge::new();
    for broken in all.into_iter().flatten() {
        send_and_cut(subject, &broken.sent, broken.cut).await?;
        completed(subject, &mut judge, &broken).await?;
    }
    require_bodies(subject, &mut judge).await?;
    Ok(judge.judgement())
}

/// Requires that the complete request succeeds, and that its retry is a replay.
async fn completed(subject: &Subject<'_>, judge: &mut Judge, broken: &Broken) -> Result<(), Stop> {
    let first = subject.settled(&broken.complete).await?;
    if !first.is_success() {
        // If a request with another key is refused too, the broken request is not the reason.
        subject.accepted().await?;
    }
    judge.require(first.is_success(), || {
        format!(
            "{}, and then the complete request got {}",
            broken.what,
            first.describe()
        )
    });
    if !first.is_success() {
        return Ok(());
    }
    let replay = subject.settled(&broken.complete).await?;
    judge.require(first.is_like(&replay), || {
        format!(
            "{}, then the complete request got {}, and its retry got {}",
            broken.what,
            first.describe(),
            replay.describe()
        )
    });
    judge.saw(format!("{}: the key is free", broken.what));
    Ok(())
}

async fn client_gone(subject: &Subject<'_>) -> Judged {
    gone(subject, &subject.operation.body).await
}

/// Takes as long as the slow payload, and at most as long as a check waits for a response.
async fn client_gone_slow(subject: &Subject<'_>) -> Judged {
    match &subject.operation.slow {
        Some(slow) => gone(subject, slow).await,
        None => Ok(Judgement::skipped("the plan has no slow payload")),
    }
}

/// Sends a request, closes the connection without reading, and retries twice.
async fn gone(subject: &Subject<'_>, template: &Template) -> Judged {
    let Gone { request, before } = Gone::send(subject, template).await?;
    pause(subject).await;
    let first = subject.settled(&request).await?;
    if !first.is_success() {
        // If a request with another key is refused too, the closed connection is not the reason.
        subject.accepted().await?;
        let mut judge = Judge::new();
        judge.require(false, || {
            format!(
                "the client closed the connection, and the retry got {}",
                first.describe()
            )
        });
        return Ok(judge.judgement());
    }
    let replay = subject.settled(&request).await?;
    let mut judge = Judge::new();
    judge.require(first.is_like(&replay), || {
        format!(
            "the first retry got {}, the second one {}",
            first.describe(),
            replay.describe()
        )
    });
    pause(subject).await;
    subject.require_effects(&mut judge, before, 1).await?;
    Ok(judge.judgement())
}

/// Sends a part of a request and ends the connection without reading a response.
async fn send_and_cut(subject: &Subject<'_>, request: &Request, cut: Cut) -> Result<(), Stop> {
    match subject.exchange(request, Some(cut)).await? {
        Ok(_) | Err(Failure::Cut) => Ok(()),
        Err(failure) => Err(Stop::NoResponse {
            request: request.describe(),
            failure,
        }),
    }
}

/// Gives the server time to notice the end of a connection.
async fn pause(subject: &Subject<'_>) {
    if !subject.plan.dry_run {
        sleep(NOTICED).await;
    }
}
