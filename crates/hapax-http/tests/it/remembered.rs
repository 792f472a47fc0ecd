//! Tests of what is stored for each response status.

use hapax::idempotency::OnFailure;

use crate::stage::Stage;

#[tokio::test]
async fn successes_are_stored_with_their_effect() {
    for status in [200, 201, 202, 204, 301, 303] {
        check(status, 1, Some("stored"), Some("replayed")).await;
    }
}

#[tokio::test]
async fn business_refusals_are_stored_without_an_effect() {
    for status in [402, 404, 409, 410, 422] {
        check(status, 0, Some("stored"), Some("replayed")).await;
    }
}

#[tokio::test]
async fn the_callers_mistake_or_moment_releases_the_key() {
    for status in [
        400, 401, 403, 405, 406, 408, 411, 412, 413, 415, 421, 425, 426, 428, 429, 431,
    ] {
        check(status, 0, None, None).await;
    }
}

#[tokio::test]
async fn a_failure_releases_the_key() {
    for status in [500, 502, 503, 504] {
        check(status, 0, None, None).await;
    }
}

#[tokio::test]
async fn a_failure_is_kept_where_the_operation_says_so() {
    let store = |layer: hapax_http::OperationLayer<_>| layer.on_failure(OnFailure::Store);
    for asked in [
        "{\"answer\":503}",
        "{\"act\":\"panic\"}",
        "{\"act\":\"fail\"}",
    ] {
        let stage = Stage::with(|_| {}, store).await;
        let first = stage.post("k", asked).await;
        assert!(first.status.is_server_error());
        assert_eq!(first.idempotency(), Some("stored"));
        let again = stage.post("k", asked).await;
        assert_eq!(again.idempotency(), Some("replayed"));
        assert_eq!(again.body, first.body);
        // A retry cannot help, so neither of them asks for one.
        if asked.contains("act") {
            for sent in [&first, &again] {
                assert_eq!(sent.json()["retryable"], false, "{asked}");
                assert_eq!(sent.header("retry-after"), None, "{asked}");
                let detail = sent.json()["detail"].as_str().unwrap().to_owned();
                assert!(detail.contains("another Idempotency-Key"), "{detail}");
            }
        }
        assert_eq!((stage.runs(), stage.effects().await), (1, 0));
    }
}

#[tokio::test]
async fn a_refusal_that_is_kept_does_not_ask_for_a_retry() {
    let stage = Stage::new().await;
    for status in ["stored", "replayed"] {
        let refused = stage.post("k", "{\"act\":\"later\"}").await;
        refused.check_problem(409, "CONFLICT.state");
        assert_eq!(refused.idempotency(), Some(status));
        assert_eq!(refused.header("retry-after"), None);
    }
}

#[tokio::test]
async fn a_failure_of_the_store_is_not_kept_whatever_its_status() {
    let stage = Stage::with(|_| {}, |layer| layer.on_failure(OnFailure::Store)).await;
    for runs in 1..=2 {
        let failed = stage.post("k", "{\"act\":\"lose the store\"}").await;
        failed.check_problem(409, "CONFLICT.state");
        assert_eq!((failed.idempotency(), stage.runs()), (None, runs));
    }
}

#[tokio::test]
async fn a_failure_that_is_not_kept_asks_for_a_retry() {
    let stage = Stage::new().await;
    let failed = stage.post("k", "{\"act\":\"fail\"}").await;
    failed.check_problem(503, "DEPENDENCY.unavailable");
    assert_eq!(failed.json()["retryable"], true);
    assert_eq!(failed.header("retry-after"), Some("7"));
    assert_eq!(failed.json()["detail"], "asked to; try again");
}

#[tokio::test]
async fn a_handler_overrules_the_table_for_one_response() {
    let stage = Stage::new().await;
    assert_eq!(
        stage
            .post("a", "{\"act\":\"overrule\"}")
            .await
            .idempotency(),
        None
    );
    assert_eq!(
        stage
            .post("a", "{\"act\":\"overrule\"}")
            .await
            .idempotency(),
        None
    );
    assert_eq!((stage.runs(), stage.effects().await), (2, 0));
    let first = stage.post("b", "{\"act\":\"insist\"}").await;
    assert_eq!(
        (first.status.as_u16(), first.idempotency()),
        (400, Some("stored"))
    );
    assert_eq!(
        stage.post("b", "{\"act\":\"insist\"}").await.idempotency(),
        Some("replayed")
    );
    assert_eq!((stage.runs(), stage.effects().await), (3, 0));
}

#[tokio::test]
async fn a_refusal_raised_as_a_problem_is_stored_with_the_first_requests_id() {
    let stage = Stage::new().await;
    let first = stage.post("k", "{\"act\":\"decline\"}").await;
    first.check_problem(402, "CONFLICT.state");
    assert_eq!(
        first.json()["request_id"],
        first.header("x-request-id").unwrap()
    );
    let again = stage.post("k", "{\"act\":\"decline\"}").await;
    assert_eq!(again.idempotency(), Some("replayed"));
    assert_eq!(again.body, first.body);
    assert_ne!(again.header("x-request-id"), first.header("x-request-id"));
}

#[tokio::test]
async fn a_refusal_after_a_statement_that_failed_is_stored_without_an_effect() {
    let stage = Stage::new().await;
    let first = stage.post("k", "{\"act\":\"collide\"}").await;
    first.check_problem(409, "CONFLICT.state");
    assert_eq!(first.idempotency(), Some("stored"));
    let again = stage.post("k", "{\"act\":\"collide\"}").await;
    assert_eq!(again.idempotency(), Some("replayed"));
    assert_eq!((stage.runs(), stage.effects().await), (1, 0));
}

#[tokio::test]
async fn what_a_client_sends_beside_its_body_cannot_break_its_events() {
    let stage = Stage::new().await;
    let mut request = crate::stage::post_json("/effects", "k", "{}");
    for name in ["traceparent", "x-correlation-id", "x-request-id"] {
        request.headers_mut().insert(name, "a\tb".parse().unwrap());
    }
    assert_eq!(stage.send(request).await.idempotency(), Some("stored"));
    assert_eq!(stage.events().await, 1);
}

#[tokio::test]
async fn a_panic_is_a_500_that_releases_the_key() {
    let stage = Stage::new().await;
    let sent = stage.post("k", "{\"act\":\"panic\"}").await;
    sent.check_problem(500, "TRANSIENT.internal");
    assert!(!String::from_utf8_lossy(&sent.body).contains("asked to"));
    assert_eq!((stage.effects().await, stage.events().await), (0, 0));
    assert_eq!(stage.post("k", "{}").await.idempotency(), Some("stored"));
}

#[tokio::test]
async fn a_handler_that_keeps_its_transaction_is_rolled_back() {
    let stage = Stage::new().await;
    let sent = stage.post("k", "{\"act\":\"keep\"}").await;
    sent.check_problem(500, "TRANSIENT.internal");
}

async fn check(status: u16, effects: i64, first: Option<&str>, second: Option<&str>) {
    let stage = Stage::new().await;
    let body = format!("{{\"answer\":{status}}}");
    let sent = stage.post("k", &body).await;
    assert_eq!((sent.status.as_u16(), sent.idempotency()), (status, first));
    assert_eq!(sent.header("idempotency-key"), Some("k"));
    let again = stage.post("k", &body).await;
    assert_eq!(
        (again.status.as_u16(), again.idempotency()),
        (status, second)
    );
    let runs = if second.is_some() { 1 } else { 2 };
    assert_eq!(stage.runs(), runs, "{status}");
    assert_eq!(
        (stage.effects().await, stage.events().await),
        (effects, effects),
        "{status}"
    );
}
