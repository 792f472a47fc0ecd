//! Statuses after which the client retries.

use hapax_client::Stopped;
use hapax_testkit::http::{HttpReceiver, HttpReply};

use crate::stage::{client, post};

async fn check(reply: HttpReply, attempts: usize, stopped: Stopped) {
    let receiver = HttpReceiver::start().await;
    receiver.reply(reply.clone());
    let answer = client().send(post(&receiver)).await.unwrap();
    assert_eq!(answer.stopped, stopped, "{reply:?}");
    assert_eq!(answer.attempts.len(), attempts, "{reply:?}");
    assert_eq!(receiver.received().len(), attempts, "{reply:?}");
}

#[tokio::test]
async fn a_passing_status_is_asked_for_again_until_the_attempts_are_used_up() {
    for status in [408, 425, 429, 500, 502, 503, 504] {
        check(HttpReply::status(status), 5, Stopped::Exhausted).await;
    }
}

#[tokio::test]
async fn an_answer_that_stands_is_not_asked_for_again() {
    for status in [
        200, 201, 204, 302, 400, 401, 403, 404, 409, 410, 412, 422, 501,
    ] {
        check(HttpReply::status(status), 1, Stopped::Final).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_stored_under_the_key_is_not_asked_for_again() {
    for status in [408, 429, 500, 502, 503, 504] {
        for said in ["stored", "replayed"] {
            let stored = HttpReply::status(status).header("idempotency-status", said);
            check(stored, 1, Stopped::Final).await;
        }
        let bypassed = HttpReply::status(status).header("idempotency-status", "bypassed");
        check(bypassed, 5, Stopped::Exhausted).await;
    }
}

#[tokio::test]
async fn a_conflict_is_asked_for_again_only_with_retry_after() {
    check(HttpReply::status(409), 1, Stopped::Final).await;
    let in_progress = HttpReply::status(409).header("retry-after", "0");
    check(in_progress, 5, Stopped::Exhausted).await;
}

#[tokio::test]
async fn the_answer_that_comes_at_last_is_the_answer_and_the_attempts_tell_the_story() {
    let receiver = HttpReceiver::start().await;
    let problem = HttpReply::status(503)
        .header("content-type", "application/problem+json")
        .body(r#"{"code":"DEPENDENCY.unavailable"}"#);
    receiver.reply_next(problem);
    receiver.reply_next(HttpReply::status(502));
    receiver.reply(HttpReply::status(201).body("made"));
    let answer = client().send(post(&receiver)).await.unwrap();
    assert_eq!(
        (answer.status.as_u16(), &answer.body[..]),
        (201, &b"made"[..])
    );
    let csv = answer.attempts.to_string();
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines[0], "attempt,delay_ms,status,code,notes");
    assert_eq!(lines[1], "1,0,5xx,503,DEPENDENCY.unavailable");
    assert!(
        lines[2].starts_with("2,") && lines[2].ends_with(",5xx,502,proxy error"),
        "{csv}"
    );
    assert!(
        lines[3].starts_with("3,") && lines[3].ends_with(",2xx,201,success"),
        "{csv}"
    );
}

#[tokio::test]
async fn a_redirect_is_handed_over_and_the_key_goes_nowhere_else() {
    let (receiver, elsewhere) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let redirect = HttpReply::status(307).header("location", &elsewhere.url("/"));
    receiver.reply(redirect);
    let answer = client().send(post(&receiver)).await.unwrap();
    assert_eq!(answer.status, 307);
    assert!(elsewhere.received().is_empty());
}
