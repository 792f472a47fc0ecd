//! Tests of requests while the store is unavailable.

use axum::routing::post;
use hapax::idempotency::OnStoreError;
use hapax_http::Settings;
use http::StatusCode;

use crate::stage::{Stage, post_json};

#[tokio::test]
async fn a_store_that_cannot_be_used_refuses_by_default() {
    let stage = Stage::new().await;
    stage.post("old", "{}").await;
    stage.lose_the_keys().await;
    let sent = stage.post("k", "{}").await;
    sent.check_problem(503, "DEPENDENCY.unavailable");
    assert_eq!(sent.header("retry-after"), Some("1"));
    assert_eq!(stage.runs(), 1);
    // A response in the replay cache does not need the store.
    assert_eq!(
        stage.post("old", "{}").await.idempotency(),
        Some("replayed")
    );
}

#[tokio::test]
async fn a_store_that_was_closed_refuses_too() {
    let stage = Stage::new().await;
    stage.store.close().await.unwrap();
    stage
        .post("k", "{}")
        .await
        .check_problem(503, "DEPENDENCY.unavailable");
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn a_service_that_fails_open_runs_unprotected_and_says_so() {
    let stage = Stage::with(|it| it.on_store_error = OnStoreError::Open, |it| it).await;
    stage.lose_the_keys().await;
    for effects in 1..=2 {
        let sent = stage.post("k", "{}").await;
        assert_eq!(sent.status, StatusCode::CREATED);
        assert_eq!(sent.idempotency(), Some("bypassed"));
        assert_eq!(sent.header("idempotency-key"), Some("k"));
        assert_eq!(stage.effects().await, effects);
    }
}

#[tokio::test]
async fn a_key_whose_answer_cannot_be_read_runs_nothing_again_though_the_service_fails_open() {
    for on_store_error in [OnStoreError::Open, OnStoreError::Closed] {
        let settings = |it: &mut Settings| {
            it.on_store_error = on_store_error;
            it.cache_bytes = 0;
        };
        let stage = Stage::with(settings, |it| it).await;
        stage.post("k", "{}").await;
        let torn = "UPDATE hapax_idempotency_key SET response_headers = x'74'";
        let torn = stage.store.write(move |db| db.execute(torn, []));
        assert_eq!(torn.await.unwrap(), 1);
        let again = stage.post("k", "{}").await;
        again.check_problem(503, "DEPENDENCY.unavailable");
        assert_eq!(stage.effects().await, 1);
    }
}

#[tokio::test]
async fn failing_open_a_handler_without_a_transaction_runs_and_one_with_it_fails() {
    let mut stage = Stage::with(|it| it.on_store_error = OnStoreError::Open, |it| it).await;
    let layer = stage.idempotency.operation("/pure");
    stage.route("/pure", post(async || "done").layer(layer));
    stage.store.close().await.unwrap();
    let pure = stage.send(post_json("/pure", "k", "{}")).await;
    assert_eq!(
        (pure.status, pure.idempotency()),
        (StatusCode::OK, Some("bypassed"))
    );
    let with = stage.post("k", "{}").await;
    with.check_problem(503, "DEPENDENCY.unavailable");
}

#[tokio::test]
async fn an_unprotected_request_needs_the_store_unless_the_service_fails_open() {
    for (on_store_error, status) in [(OnStoreError::Closed, 503), (OnStoreError::Open, 200)] {
        let mut stage = Stage::with(|it| it.on_store_error = on_store_error, |it| it).await;
        let layer = stage.idempotency.operation("/pure").optional();
        stage.route("/pure", post(async || "done").layer(layer));
        stage.store.close().await.unwrap();
        assert_eq!(
            stage
                .send(post_json("/pure", "", "{}"))
                .await
                .status
                .as_u16(),
            status
        );
    }
}
