//! Requests of which nothing was sent: the key is free, or another connection is used.

use std::time::Duration;

use hapax_runtime::config::Span;
use tokio::net::TcpListener;

use crate::{
    stage::{Stage, check_problem, settings},
    upstream::{Reply, Upstream, ok},
};

#[tokio::test]
async fn a_service_that_cannot_be_reached_leaves_the_key_free() {
    let port = free_port().await;
    let url = format!("http://127.0.0.1:{port}");
    let mut settings = settings(&[&url]);
    // The instance is tried again at once.
    let service = settings.upstreams.get_mut("service").unwrap();
    service.eject = Span(Duration::from_millis(1));
    let stage = Stage::with(&settings).await;
    let refused = stage.post("/orders", "k", "{}").await;
    check_problem(&refused, 503, "DEPENDENCY.unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let other = stage.post("/orders", "k", "{\"other\":1}").await;
    check_problem(&other, 503, "DEPENDENCY.unavailable");
}

#[tokio::test]
async fn a_request_that_was_not_sent_goes_to_another_instance() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{}"))).await;
    let dead = format!("http://127.0.0.1:{}", free_port().await);
    let stage = Stage::with(&settings(&[&dead, &upstream.url()])).await;
    for key in ["a", "b", "c", "d"] {
        assert_eq!(stage.post("/orders", key, "{}").await.status, 201);
    }
    assert_eq!(upstream.ledger().len(), 4);
}

#[tokio::test]
async fn a_request_is_sent_once_if_the_service_closes_idle_connections() {
    let upstream = Upstream::start(|_| {
        // The response does not announce that the connection is closed.
        Reply::Cut(ok("201 Created", "{}"))
    })
    .await;
    let stage = Stage::new(&upstream, |_| {}).await;
    for number in 0..20 {
        let key = format!("k{number}");
        let answer = stage.post("/orders", &key, "{}").await;
        // If the connection was closed before the request was written, it was sent on another one.
        // If it was closed at the same moment, the outcome is unknown.
        assert!(matches!(answer.status, 201 | 502), "{answer:?}");
        let requests = upstream.ledger().len();
        stage.post("/orders", &key, "{}").await;
        assert_eq!(upstream.ledger().len(), requests, "it was sent twice");
    }
    assert!(upstream.ledger().len() <= 20);
}

#[tokio::test]
async fn requests_that_exceed_the_bound_are_refused_without_being_sent() {
    let upstream = Upstream::start(|_| Reply::Nothing).await;
    let mut settings = settings(&[&upstream.url()]);
    settings.upstreams.get_mut("service").unwrap().concurrency = 1;
    let stage = Stage::with(&settings).await;
    let running = stage.post("/orders", "a", "{}");
    let refused = async {
        hapax_testkit::wait::eventually(crate::stage::PATIENCE, async || {
            upstream.ledger().len() == 1
        })
        .await;
        let refused = stage.post("/orders", "b", "{}").await;
        // Another request can use the key.
        let other = stage.post("/orders", "b", "{\"other\":1}").await;
        (refused, other)
    };
    tokio::select! {
        answer = running => panic!("the service does not respond: {answer:?}"),
        (refused, other) = refused => {
            check_problem(&refused, 503, "DEPENDENCY.unavailable");
            check_problem(&other, 503, "DEPENDENCY.unavailable");
        }
    };
    assert_eq!(upstream.ledger().len(), 1);
}

/// A port without a listener.
async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}
