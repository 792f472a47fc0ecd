//! Look-ups: the service says what has happened to a request whose outcome is unknown.

use std::{collections::BTreeMap, time::Duration};

use hapax::{
    Clock,
    idempotency::KeyState,
    key::{IdempotencyKey, Operation, Scope, Tenant},
    store::Keys as _,
};
use hapax_gateway::config::{LookUp, LookUpMethod, OnUnknown, Route};
use hapax_runtime::config::Span;
use hapax_testkit::{clock::system_clock, wait::eventually};

use crate::{
    stage::{PATIENCE, Stage, check_problem, settings},
    upstream::{Received, Reply, Upstream, ok},
};

#[tokio::test]
async fn a_request_that_has_happened_gets_the_response_of_the_look_up() {
    let upstream = Upstream::start(|received| {
        if is_look_up(received) {
            assert_eq!(received.header("authorization"), Some("Bearer secret"));
            return Reply::Bytes(ok("200 OK", "{\"id\":7}"));
        }
        Reply::Cut(Vec::new())
    })
    .await;
    let stage = Stage::new(&upstream, |route| look_up(route, Duration::ZERO)).await;
    let first = stage.post("/orders", "\"a key\"", "{}").await;
    check_problem(&first, 502, "DEPENDENCY.unavailable");
    for status in ["stored; upstream=opaque", "replayed; upstream=opaque"] {
        let again = stage.post("/orders", "\"a key\"", "{}").await;
        assert_eq!((again.status, again.text()), (201, "{\"id\":7}".to_owned()));
        assert_eq!(again.header("idempotency-status"), Some(status));
    }
    let expected = [
        "POST /orders HTTP/1.1",
        "GET /by-key/%22a%20key%22 HTTP/1.1",
    ];
    assert_eq!(upstream.ledger(), expected);
}

#[tokio::test]
async fn a_request_that_has_not_happened_is_sent() {
    let upstream = not_happened(cut_once).await;
    let stage = Stage::new(&upstream, |route| look_up(route, Duration::ZERO)).await;
    stage.post("/orders", "k", "{}").await;
    assert_eq!(stage.post("/orders", "k", "{}").await.status, 201);
    assert_eq!(upstream.ledger().len(), 3);
}

#[tokio::test]
async fn the_service_may_still_execute_a_request_that_was_sent_a_moment_ago() {
    let upstream = not_happened(|_| Reply::Cut(Vec::new())).await;
    let stage = Stage::new(&upstream, |route| look_up(route, Duration::from_hours(1))).await;
    stage.post("/orders", "k", "{}").await;
    let again = stage.post("/orders", "k", "{}").await;
    check_problem(&again, 503, "DEPENDENCY.unavailable");
    assert_eq!(posts(&upstream), 1);
}

#[tokio::test]
async fn a_gateway_whose_clock_is_ahead_does_not_believe_the_service_too_early() {
    let upstream = not_happened(|_| Reply::Cut(Vec::new())).await;
    let mut settings = settings(&[&upstream.url()]);
    let route = settings.routes.get_mut("all").unwrap();
    look_up(route, Duration::from_hours(1));
    let first = Stage::with(&settings).await;
    let clock = system_clock();
    let ahead = Clock::new(move || clock.now().after(Duration::from_hours(2)));
    let second = first.beside(ahead, &settings).await;
    first.post("/orders", "k", "{}").await;
    for _ in 0..2 {
        let again = second.post("/orders", "k", "{}").await;
        check_problem(&again, 503, "DEPENDENCY.unavailable");
    }
    assert_eq!(posts(&upstream), 1);
}

#[tokio::test]
async fn a_gateway_whose_clock_is_behind_sends_a_request_that_has_not_happened() {
    let upstream = not_happened(cut_once).await;
    let mut settings = settings(&[&upstream.url()]);
    let route = settings.routes.get_mut("all").unwrap();
    look_up(route, Duration::from_millis(50));
    let first = Stage::with(&settings).await;
    // The time of the record is in the future of this clock.
    let clock = system_clock();
    let behind = Clock::new(move || {
        let now = clock.now().as_millis();
        hapax::Timestamp::from_millis(now - 60_000)
    });
    let second = first.beside(behind, &settings).await;
    first.post("/orders", "k", "{}").await;
    eventually(PATIENCE, async || {
        second.post("/orders", "k", "{}").await.status == 201
    })
    .await;
    assert_eq!(posts(&upstream), 2);
}

#[tokio::test]
async fn the_outcome_is_looked_up_even_if_the_client_does_not_retry() {
    let upstream = Upstream::start(|received| {
        if is_look_up(received) {
            return Reply::Bytes(ok("200 OK", "{\"id\":7}"));
        }
        Reply::Cut(Vec::new())
    })
    .await;
    let stage = Stage::new(&upstream, |route| look_up(route, Duration::ZERO)).await;
    stage.post("/orders", "k", "{}").await;
    let operation = Operation::new("gateway:POST /{*path}").unwrap();
    let scope = Scope {
        tenant: Tenant::new("default").unwrap(),
        operation,
        key: IdempotencyKey::new("k").unwrap(),
    };
    eventually(PATIENCE, async || {
        let row = stage.store.look_up(&scope).await.unwrap();
        row.is_some_and(|row| row.state == KeyState::Completed)
    })
    .await;
    let late = stage.post("/orders", "k", "{}").await;
    assert_eq!((late.status, late.text()), (201, "{\"id\":7}".to_owned()));
    let expected = ["POST /orders HTTP/1.1", "GET /by-key/k HTTP/1.1"];
    assert_eq!(upstream.ledger(), expected);
}

#[tokio::test]
async fn a_key_in_quotation_marks_is_looked_up_as_the_service_has_received_it() {
    // Each service knows the request under one text of its key.
    for known in ["/by-key/%22k%22 ", "/by-key/k "] {
        let upstream = Upstream::start(move |received| {
            if is_look_up(received) {
                return Reply::Bytes(if received.head.contains(known) {
                    ok("200 OK", "{\"id\":7}")
                } else {
                    ok("404 Not Found", "{}")
                });
            }
            Reply::Cut(Vec::new())
        })
        .await;
        let stage = Stage::new(&upstream, |route| look_up(route, Duration::ZERO)).await;
        stage.post("/orders", "\"k\"", "{}").await;
        // The form of the retry is not that of the first attempt.
        let again = stage.post("/orders", "k", "{}").await;
        assert_eq!((again.status, again.text()), (201, "{\"id\":7}".to_owned()));
        assert_eq!(posts(&upstream), 1, "{known}");
    }
}

/// A service that has not executed any request, according to its look-ups.
async fn not_happened(reply: fn(&Received) -> Reply) -> Upstream {
    Upstream::start(move |received| {
        if is_look_up(received) {
            return Reply::Bytes(ok("404 Not Found", "{}"));
        }
        reply(received)
    })
    .await
}

fn cut_once(received: &Received) -> Reply {
    match received.before {
        0 => Reply::Cut(Vec::new()),
        _ => Reply::Bytes(ok("201 Created", "{}")),
    }
}

/// The number of requests that were sent.
fn posts(upstream: &Upstream) -> usize {
    let ledger = upstream.ledger();
    ledger.iter().filter(|it| it.starts_with("POST")).count()
}

fn is_look_up(received: &Received) -> bool {
    received.head.starts_with("GET /by-key/")
}

fn look_up(route: &mut Route, settle: Duration) {
    route.unknown = OnUnknown::LookUp;
    let secret = "Bearer secret".to_owned().into();
    route.look_up = Some(LookUp {
        method: LookUpMethod::Get,
        path: "/by-key/{key}".to_owned(),
        headers: BTreeMap::from([("authorization".to_owned(), secret)]),
        happened: vec![200],
        not_happened: vec![404],
        status: Some(201),
        settle: Span(settle),
        timeout: Span(Duration::from_secs(5)),
    });
}
