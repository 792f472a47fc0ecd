//! Phased keys that are released: nothing happened under them, or the handler says so. Otherwise
//! the key is kept for a run that resumes it.

use std::time::Duration;

use hapax::{event::Headers, idempotency::KeyState, store::Keys};
use http::StatusCode;

use super::{node, pay, row, scene, stage, write};
use crate::stage::{Stage, post_json, send};

#[tokio::test]
async fn a_callers_mistake_before_anything_happened_releases_the_key() {
    let (stage, _, node) = scene().await;
    let mistake = pay(&node, "k", "{\"first\":\"mistake\"}").await;
    mistake.check_problem(400, "VALIDATION.member");
    let unread = pay(&node, "k", "[]").await;
    assert_eq!(unread.status, StatusCode::BAD_REQUEST);
    assert!(row(&stage, "k").await.is_none());
    assert_eq!(pay(&node, "k", "{}").await.idempotency(), Some("stored"));
}

#[tokio::test]
async fn a_handlers_word_releases_a_key_that_was_used() {
    let (stage, _, node) = scene().await;
    let released = pay(&node, "k", "{\"end\":\"release\"}").await;
    assert_eq!(released.status, StatusCode::BAD_GATEWAY);
    assert!(row(&stage, "k").await.is_none());
}

#[tokio::test]
async fn a_failure_of_which_nothing_came_releases_the_key() {
    for end in ["nothing", "undone"] {
        let (stage, far, node) = scene().await;
        let body = format!("{{\"end\":\"{end}\"}}");
        let failed = pay(&node, "k", &body).await;
        failed.check_problem(503, "DEPENDENCY.unavailable");
        assert!(row(&stage, "k").await.is_none(), "{end}");
        assert_eq!(*far.believed.lock().unwrap(), [true]);
        stage.pass(Duration::from_millis(1));
        assert_eq!(pay(&node, "k", "{}").await.idempotency(), Some("stored"));
        let calls = far.calls.lock().unwrap();
        assert_ne!(calls[0], calls[1], "the provider keys are new");
    }
}

#[tokio::test]
async fn the_word_that_nothing_happened_does_not_outlive_what_happens_next() {
    for end in ["nothing, then a call", "nothing, then a phase"] {
        let (stage, _, node) = scene().await;
        let body = format!("{{\"end\":\"{end}\"}}");
        let failed = pay(&node, "k", &body).await;
        failed.check_problem(503, "DEPENDENCY.unavailable");
        check_in_progress(&stage).await;
    }
}

#[tokio::test]
async fn a_phase_that_cannot_be_opened_takes_back_the_word_that_nothing_happened() {
    let (stage, far, node) = scene().await;
    let failed = pay(&node, "k", "{\"end\":\"nothing, then no phase\"}").await;
    failed.check_problem(500, "TRANSIENT.internal");
    assert_eq!(*far.believed.lock().unwrap(), [true]);
    check_in_progress(&stage).await;
}

#[tokio::test]
async fn a_phase_that_is_cut_off_while_it_opens_takes_back_the_word_that_nothing_happened() {
    let (stage, far, node) = scene().await;
    let body = "{\"first\":\"gate\",\"end\":\"nothing, then a phase\"}";
    let mut request = post_json("/payments", "k", body);
    let headers = request.headers_mut();
    headers.insert("x-request-timeout", "3000".parse().unwrap());
    let running = tokio::spawn(send(node.router.clone(), request));
    far.entered(1).await;
    // Another transaction has the single writer until the handler is dropped.
    let mut busy = stage.store.begin(None, Headers::new()).await.unwrap();
    write(&mut busy).await.unwrap();
    far.gate.add_permits(1);
    far.left.acquire().await.unwrap().forget();
    hapax::store::Transaction::rollback(busy).await;
    let late = running.await.unwrap();
    late.check_problem(504, "DEPENDENCY.timeout");
    assert_eq!(*far.believed.lock().unwrap(), [true]);
    check_in_progress(&stage).await;
}

#[tokio::test]
async fn nobody_says_that_nothing_happened_under_a_key_that_somebody_had_before() {
    let (stage, far) = stage().await;
    let body = "{\"first\":\"503\",\"end\":\"nothing\"}";
    let node = node(&stage, &far, |_| {});
    for _ in 0..2 {
        let failed = pay(&node, "k", body).await;
        failed.check_problem(503, "DEPENDENCY.unavailable");
        check_in_progress(&stage).await;
    }
    assert_eq!(*far.believed.lock().unwrap(), [false]);
    let calls = far.calls.lock().unwrap();
    assert_eq!(calls[0], calls[1]);
}

/// Checks that the key `k` is kept for a run that resumes it.
async fn check_in_progress(stage: &Stage) {
    let kept = row(stage, "k").await.map(|row| row.state);
    assert_eq!(kept, Some(KeyState::InProgress));
}
