//! The commits of a request, and responses of the service that the store does not accept at once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use hapax::failpoint::Failpoints;

use crate::{
    stage::{Stage, check_problem, settings},
    upstream::{Reply, Upstream, ok},
};

#[tokio::test]
async fn a_response_is_stored_although_the_store_fails_first() {
    check("sqlite.commit.before", 3).await;
}

#[tokio::test]
async fn a_response_is_returned_although_the_result_of_its_commit_is_lost() {
    check("sqlite.commit.after", 1).await;
}

#[tokio::test]
async fn a_key_whose_entry_was_rolled_back_is_free() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{}"))).await;
    let left = Arc::new(AtomicUsize::new(0));
    let failpoints = failing("sqlite.commit.before", Arc::clone(&left));
    let stage = Stage::failing(&settings(&[&upstream.url()]), failpoints).await;
    left.store(1, Ordering::SeqCst);
    let refused = stage.post("/orders", "k", "{}").await;
    check_problem(&refused, 503, "DEPENDENCY.unavailable");
    assert!(upstream.ledger().is_empty());
    assert_eq!(stage.post("/orders", "k", "{}").await.status, 201);
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn a_first_request_has_two_commits_and_a_replay_none() {
    let commits = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&commits);
    let failpoints = Failpoints::calling(move |name| {
        if name == "sqlite.commit.after" {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let at_the_service = Arc::new(AtomicUsize::new(0));
    let (seen, so_far) = (Arc::clone(&at_the_service), Arc::clone(&commits));
    let upstream = Upstream::start(move |_| {
        seen.store(so_far.load(Ordering::SeqCst), Ordering::SeqCst);
        Reply::Bytes(ok("201 Created", "{}"))
    })
    .await;
    let stage = Stage::failing(&settings(&[&upstream.url()]), failpoints).await;
    let before = commits.load(Ordering::SeqCst);
    assert_eq!(stage.post("/orders", "k", "{}").await.status, 201);
    // The key and the phase `sent` are one commit, before the service has the request.
    assert_eq!(at_the_service.load(Ordering::SeqCst) - before, 1);
    assert_eq!(commits.load(Ordering::SeqCst) - before, 2);
    assert_eq!(stage.post("/orders", "k", "{}").await.status, 201);
    assert_eq!(commits.load(Ordering::SeqCst) - before, 2);
}

/// Has commits fail at this place after the service has received the request.
async fn check(place: &'static str, failures: usize) {
    let left = Arc::new(AtomicUsize::new(0));
    let planned = Arc::clone(&left);
    let upstream = Upstream::start(move |_| {
        planned.store(failures, Ordering::SeqCst);
        Reply::Bytes(ok("201 Created", "{\"id\":7}"))
    })
    .await;
    let failpoints = failing(place, Arc::clone(&left));
    let stage = Stage::failing(&settings(&[&upstream.url()]), failpoints).await;
    for _ in 0..2 {
        let answer = stage.post("/orders", "k", "{}").await;
        let received = (answer.status, answer.text());
        assert_eq!(received, (201, "{\"id\":7}".to_owned()), "{answer:?}");
        assert_eq!(left.load(Ordering::SeqCst), 0, "the store did not fail");
    }
    assert_eq!(upstream.ledger().len(), 1);
}

/// Has the next commits fail at this place, as many as `left` says.
fn failing(place: &'static str, left: Arc<AtomicUsize>) -> Failpoints {
    Failpoints::calling(move |name| {
        let fewer = |left: usize| left.checked_sub(1);
        let is_struck = name == place
            && left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer)
                .is_ok();
        assert!(!is_struck, "on purpose");
    })
}
