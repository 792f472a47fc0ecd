//! Tests of the rate limit in front of an operation.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::routing::post;
use hapax::Stopwatch;
use hapax_http::{Rate, RateLimit};
use http::HeaderValue;

use crate::stage::{Sent, Stage, post_json};

#[tokio::test]
async fn a_request_beyond_the_limit_claims_no_key_and_a_replay_counts_too() {
    let (stage, seconds) = stage().await;
    let first = ask(&stage, "1").await;
    assert_eq!(first.idempotency(), Some("stored"));
    assert_eq!(ask(&stage, "1").await.idempotency(), Some("replayed"));
    for key in ["1", "2"] {
        let refused = ask(&stage, key).await;
        refused.check_problem(429, "RATE_LIMIT.exceeded");
        assert_eq!(refused.json()["retryable"], true);
        assert_eq!(refused.header("retry-after"), Some("30"));
        assert_eq!(refused.idempotency(), None);
    }
    let keys = "SELECT count(*) FROM hapax_idempotency_key";
    assert_eq!(stage.count(keys).await, 1);
    seconds.store(29, Ordering::SeqCst);
    assert_eq!(ask(&stage, "2").await.header("retry-after"), Some("1"));
    seconds.store(30, Ordering::SeqCst);
    assert_eq!(ask(&stage, "2").await.idempotency(), Some("stored"));
    assert_eq!(ask(&stage, "2").await.header("retry-after"), Some("30"));
}

#[tokio::test]
async fn one_tenants_requests_are_not_limited_by_those_of_another() {
    let (stage, _) = stage().await;
    for _ in 0..3 {
        ask(&stage, "1").await;
    }
    let mut request = post_json("/limited", "1", "{}");
    let bob = HeaderValue::from_static("bob");
    request.headers_mut().insert("authorization", bob);
    assert_eq!(stage.send(request).await.idempotency(), Some("stored"));
}

/// A service with two requests a minute, two at once, and its stopwatch in seconds.
async fn stage() -> (Stage, Arc<AtomicU64>) {
    let mut stage = Stage::new().await;
    let seconds = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&seconds);
    let stopwatch = Stopwatch::new(move || Duration::from_secs(read.load(Ordering::SeqCst)));
    let two = NonZeroU32::new(2).unwrap();
    let rate = Rate {
        requests: two,
        period: Duration::from_mins(1),
        burst: two,
    };
    let operation = stage.idempotency.operation("/limited");
    let limited = post(async || "done").layer(operation);
    stage.route("/limited", limited.layer(RateLimit::new(rate, stopwatch)));
    (stage, seconds)
}

async fn ask(stage: &Stage, key: &str) -> Sent {
    stage.send(post_json("/limited", key, "{}")).await
}
