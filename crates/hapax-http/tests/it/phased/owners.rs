//! Owners of a phased key: duplicates wait for a live one, and a dead or late one is replaced by a
//! retry or by a completer.

use std::{thread, time::Duration};

use axum::Router;
use hapax::{
    idempotency::KeyState,
    limits::{GRACE, LEASE},
};
use hapax_http::{Completer, Derived, OperationLayer, Settings, problem};
use hapax_sqlite::Sqlite;
use hapax_testkit::wait::eventually;
use http::StatusCode;
use tokio::runtime::Runtime;

use super::{DAWDLING, Far, Node, PATIENCE, check, node, node_with, pay, row, sends, stage};

#[tokio::test]
async fn a_storm_of_phased_duplicates_runs_once() {
    let (stage, far) = stage().await;
    let wait = |it: &mut Settings| it.wait = PATIENCE;
    let nodes = [node(&stage, &far, wait), node(&stage, &far, wait)];
    let storm: Vec<_> = (0..100)
        .map(|n| tokio::spawn(sends(&nodes[n % 2], "k", "{\"first\":\"gate behind\"}")))
        .collect();
    far.entered(1).await;
    far.gate.add_permits(1);
    let mut stored = 0;
    for sent in storm {
        let sent = sent.await.unwrap();
        assert_eq!(sent.status, StatusCode::CREATED);
        stored += u32::from(sent.idempotency() == Some("stored"));
    }
    assert_eq!(stored, 1);
    check(&stage, &far, 1, 1, 2).await;
}

#[tokio::test]
async fn a_duplicate_on_another_node_waits_and_is_then_asked_to_retry() {
    let (stage, far) = stage().await;
    let first = node(&stage, &far, |_| {});
    let gated = "{\"first\":\"gate behind\"}";
    let running = tokio::spawn(sends(&first, "k", gated));
    far.entered(1).await;
    let short = node(&stage, &far, |it| it.wait = Duration::from_millis(50));
    let outcome = pay(&short, "k", gated).await;
    outcome.check_problem(409, "CONFLICT.idempotency.in_progress");
    assert_eq!(outcome.header("retry-after"), Some("1"));
    let other = pay(&short, "k", "{}").await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
    let long = node(&stage, &far, |it| it.wait = PATIENCE);
    let waiting = tokio::spawn(sends(&long, "k", gated));
    far.gate.add_permits(1);
    let response = running.await.unwrap();
    waiting.await.unwrap().check_replays(&response);
    check(&stage, &far, 1, 1, 2).await;
}

#[tokio::test]
async fn the_key_of_a_dead_owner_is_resumed_when_its_lease_has_lapsed() {
    let (stage, far) = stage().await;
    let body = "{\"first\":\"gate behind\"}";
    crash(&node(&stage, &far, |_| {}), &far, body).await;
    let node = node(&stage, &far, |it| it.wait = Duration::ZERO);
    let early = pay(&node, "k", body).await;
    early.check_problem(409, "CONFLICT.idempotency.in_progress");
    let kept = "SELECT count(request) FROM hapax_idempotency_key";
    assert_eq!(stage.count(kept).await, 1);
    stage.pass(LEASE);
    assert_eq!(pay(&node, "k", body).await.idempotency(), Some("stored"));
    check(&stage, &far, 2, 1, 2).await;
}

/// The completer may send a derived key, although clients may not.
#[tokio::test]
async fn a_completer_resumes_a_request_whose_key_was_derived() {
    let derived = |layer: OperationLayer<Sqlite>| {
        // `If-Match` is always kept; naming it has no further effect.
        let layer = layer.kept_headers([http::header::IF_MATCH]);
        layer.derived(|view| Ok(Derived::new().part("body", format!("{:?}", view.body()))))
    };
    let (stage, far) = stage().await;
    let body = "{\"first\":\"gate behind\"}";
    let dead = node_with(&stage, &far, |_| {}, derived);
    crash_under(&dead, &far, "", body).await;
    let node = node_with(&stage, &far, |_| {}, derived);
    let completing = tokio::spawn(completer(&node, Duration::from_millis(200)).run());
    stage.pass(LEASE + Duration::from_millis(200));
    let completed = "SELECT count(*) FROM hapax_idempotency_key WHERE state = 'completed'";
    eventually(PATIENCE, async || stage.count(completed).await == 1).await;
    completing.abort();
    assert_eq!(pay(&node, "", body).await.idempotency(), Some("replayed"));
    check(&stage, &far, 2, 1, 2).await;
}

#[tokio::test]
async fn a_completer_resumes_what_no_client_comes_for() {
    let (stage, far) = stage().await;
    let body = "{\"first\":\"gate behind\"}";
    crash(&node(&stage, &far, |_| {}), &far, body).await;
    let node = node(&stage, &far, |_| {});
    let completing = tokio::spawn(completer(&node, Duration::from_millis(200)).run());
    stage.pass(LEASE + Duration::from_millis(200));
    eventually(PATIENCE, async || {
        row(&stage, "k").await.unwrap().state == KeyState::Completed
    })
    .await;
    completing.abort();
    assert_eq!(pay(&node, "k", body).await.idempotency(), Some("replayed"));
    check(&stage, &far, 2, 1, 2).await;
    let seen = far.seen.lock().unwrap();
    let (tenant, headers) = &seen[1];
    assert_eq!(tenant, "alice");
    assert_eq!(headers["x-mine"], "kept");
    assert_eq!(headers["content-type"], "application/json");
    assert!(seen[0].1.contains_key("authorization"));
    assert!(!headers.contains_key("authorization") && !headers.contains_key("x-other"));
}

#[tokio::test]
async fn a_completer_gives_back_what_its_routes_do_not_take() {
    let (stage, far) = stage().await;
    crash(
        &node(&stage, &far, |_| {}),
        &far,
        "{\"first\":\"gate behind\"}",
    )
    .await;
    let node = node(&stage, &far, |_| {});
    let nowhere = Router::new().fallback(problem::not_found);
    let completer = Completer::new(&node.idempotency, nowhere).grace(GRACE);
    stage.pass(LEASE + GRACE);
    let before = row(&stage, "k").await.unwrap();
    let completing = tokio::spawn(completer.run());
    eventually(PATIENCE, async || {
        let now = row(&stage, "k").await.unwrap();
        now.epoch > before.epoch && now.lease_until <= Some(now.read_at)
    })
    .await;
    completing.abort();
    assert_eq!(far.runs(), 1);
}

#[tokio::test]
async fn a_fenced_owner_commits_nothing_and_its_client_gets_the_winners_answer() {
    for first in ["gate", "gate behind"] {
        let (stage, far) = stage().await;
        let (late, next) = (node(&stage, &far, |_| {}), node(&stage, &far, |_| {}));
        let body = format!("{{\"first\":\"{first}\"}}");
        let stalled = tokio::spawn(sends(&late, "k", &body));
        far.entered(1).await;
        stage.pass(LEASE);
        let winner = pay(&next, "k", &body).await;
        assert_eq!(
            (winner.status, winner.idempotency()),
            (StatusCode::CREATED, Some("stored"))
        );
        far.gate.add_permits(1);
        stalled.await.unwrap().check_replays(&winner);
        assert_eq!(
            (stage.effects().await, stage.events().await),
            (2, 2),
            "{first}"
        );
        let calls = far.calls.lock().unwrap();
        assert!(calls.iter().all(|call| *call == calls[0]));
    }
}

#[tokio::test]
async fn a_fenced_owner_that_only_answers_is_not_believed() {
    let (stage, far) = stage().await;
    let (late, next) = (node(&stage, &far, |_| {}), node(&stage, &far, |_| {}));
    let body = "{\"first\":\"gate\",\"end\":\"ignore\"}";
    let stalled = tokio::spawn(sends(&late, "k", body));
    far.entered(1).await;
    stage.pass(LEASE);
    let winner = pay(&next, "k", body).await;
    far.gate.add_permits(1);
    stalled.await.unwrap().check_replays(&winner);
}

#[tokio::test]
async fn a_fenced_owner_is_cut_off_by_its_next_renewal() {
    let (stage, far) = stage().await;
    let lease = |it: &mut Settings| {
        it.lease = Duration::from_millis(300);
        it.handler_max = Duration::MAX;
    };
    let (late, next) = (node(&stage, &far, lease), node(&stage, &far, |_| {}));
    // The handler never returns.
    let body = "{\"first\":\"hang\"}";
    let stalled = tokio::spawn(sends(&late, "k", body));
    far.entered(1).await;
    let winner = loop {
        stage.pass(Duration::from_secs(1));
        let sent = pay(&next, "k", body).await;
        if sent.status == StatusCode::CREATED {
            break sent;
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, stalled).await;
    outcome
        .expect("it is aborted")
        .unwrap()
        .check_replays(&winner);
}

#[tokio::test]
async fn a_slow_handler_keeps_its_key_as_long_as_it_lives() {
    let (stage, far) = stage().await;
    let lease = |it: &mut Settings| it.lease = Duration::from_millis(300);
    let slow = node(&stage, &far, lease);
    let body = "{\"first\":\"gate\"}";
    let running = tokio::spawn(sends(&slow, "k", body));
    far.entered(1).await;
    let next = node(&stage, &far, |it| it.wait = Duration::ZERO);
    for _ in 0..5 {
        let before = row(&stage, "k").await.unwrap().lease_until;
        stage.pass(Duration::from_millis(290));
        eventually(PATIENCE, async || {
            row(&stage, "k").await.unwrap().lease_until > before
        })
        .await;
        let outcome = pay(&next, "k", body).await;
        outcome.check_problem(409, "CONFLICT.idempotency.in_progress");
    }
    far.gate.add_permits(1);
    assert_eq!(running.await.unwrap().idempotency(), Some("stored"));
    check(&stage, &far, 1, 1, 2).await;
}

#[tokio::test]
async fn a_renewal_that_waits_for_an_open_phase_is_not_waited_for() {
    let (stage, far) = stage().await;
    let node = node(&stage, &far, |it| it.lease = DAWDLING / 2);
    // The phase has the single writer, so a renewal waits until the phase has ended.
    let outcome = pay(&node, "k", "{\"first\":\"dawdle\"}").await;
    assert_eq!(outcome.status, StatusCode::CREATED);
    let outcome = pay(&node, "k2", "{\"end\":\"dawdle\"}").await;
    assert_eq!(outcome.status, StatusCode::CREATED);
    check(&stage, &far, 2, 2, 4).await;
}

fn completer(node: &Node, grace: Duration) -> Completer<Sqlite, Router> {
    Completer::new(&node.idempotency, node.inside.clone()).grace(grace)
}

/// Sends a request to a node, and stops all tasks of the node in the middle of it.
async fn crash(node: &Node, far: &Far, body: &str) {
    crash_under(node, far, "k", body).await;
}

async fn crash_under(node: &Node, far: &Far, key: &str, body: &str) {
    let request = sends(node, key, body);
    let runtime = Runtime::new().unwrap();
    runtime.spawn(request);
    far.entered(1).await;
    thread::spawn(move || runtime.shutdown_background())
        .join()
        .unwrap();
}
