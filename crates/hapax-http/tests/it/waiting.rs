//! Tests of duplicates that arrive while the first request runs, and of clients whose time runs
//! out.

use std::time::{Duration, Instant};

use hapax_http::OperationLayer;
use hapax_sqlite::Sqlite;
use http::{Request, StatusCode};

use crate::stage::{Sent, Stage, post_json, send};

const GATED: &str = "{\"act\":\"gate\"}";

#[tokio::test]
async fn a_storm_of_duplicates_runs_once_and_all_get_the_same_answer() {
    let stage = Stage::with(|it| it.wait = Duration::from_secs(30), |it| it).await;
    let storm: Vec<_> = (0..1_000)
        .map(|_| tokio::spawn(sends(&stage, GATED)))
        .collect();
    stage.entered(1).await;
    stage.props.gate.add_permits(1);
    let (mut stored, mut replayed) = (0, 0);
    let mut bodies = std::collections::HashSet::new();
    for sent in storm {
        let sent = sent.await.unwrap();
        stored += u32::from(sent.idempotency() == Some("stored"));
        replayed += u32::from(sent.idempotency() == Some("replayed"));
        assert_eq!(sent.status, StatusCode::CREATED);
        bodies.insert(sent.body);
    }
    assert_eq!((stored, replayed, bodies.len()), (1, 999, 1));
    assert_eq!(
        (stage.runs(), stage.effects().await, stage.events().await),
        (1, 1, 1)
    );
}

#[tokio::test]
async fn a_duplicate_is_asked_to_retry_when_the_first_takes_longer_than_the_wait() {
    let stage = Stage::with(|it| it.wait = Duration::from_millis(20), |it| it).await;
    let first = tokio::spawn(sends(&stage, GATED));
    stage.entered(1).await;
    let second = stage.post("k", GATED).await;
    second.check_problem(409, "CONFLICT.idempotency.in_progress");
    assert_eq!(second.json()["retryable"], true);
    assert_eq!(second.header("retry-after"), Some("1"));
    assert_eq!(second.header("idempotency-key"), Some("k"));
    stage.props.gate.add_permits(1);
    assert_eq!(first.await.unwrap().idempotency(), Some("stored"));
    assert_eq!(stage.post("k", GATED).await.idempotency(), Some("replayed"));
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn an_operation_has_a_wait_of_its_own() {
    let set = |layer: OperationLayer<Sqlite>| layer.wait(Duration::from_millis(20));
    let stage = Stage::with(|it| it.wait = Duration::from_mins(1), set).await;
    let first = tokio::spawn(sends(&stage, GATED));
    stage.entered(1).await;
    let second = stage.post("k", GATED).await;
    second.check_problem(409, "CONFLICT.idempotency.in_progress");
    stage.props.gate.add_permits(1);
    first.await.unwrap();
}

#[tokio::test]
async fn the_clients_time_caps_the_wait() {
    let stage = Stage::with(|it| it.wait = Duration::from_mins(1), |it| it).await;
    let first = tokio::spawn(sends(&stage, GATED));
    stage.entered(1).await;
    let began = Instant::now();
    let second = stage.send(within("50", GATED)).await;
    second.check_problem(409, "CONFLICT.idempotency.in_progress");
    assert!(began.elapsed() < Duration::from_secs(20));
    stage.props.gate.add_permits(1);
    first.await.unwrap();
}

#[tokio::test]
async fn another_payload_is_a_mismatch_even_while_the_first_request_runs() {
    let stage = Stage::with(|it| it.wait = Duration::from_mins(1), |it| it).await;
    let first = tokio::spawn(sends(&stage, GATED));
    stage.entered(1).await;
    let other = stage.post("k", "{}").await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
    assert_eq!(other.header("retry-after"), None);
    stage.props.gate.add_permits(1);
    assert_eq!(first.await.unwrap().status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_wrong_payload_that_comes_first_does_not_make_the_right_one_a_mismatch() {
    let settings = |it: &mut hapax_http::Settings| {
        it.cache_bytes = 0;
        it.wait = Duration::from_secs(30);
    };
    let stage = Stage::with(settings, |it| it).await;
    stage.post("k", "{}").await;
    let wrong: Vec<_> = (0..50)
        .map(|_| tokio::spawn(sends(&stage, "{\"answer\":202}")))
        .collect();
    let right: Vec<_> = (0..50).map(|_| tokio::spawn(sends(&stage, "{}"))).collect();
    for sent in wrong {
        assert_eq!(sent.await.unwrap().status, StatusCode::CONFLICT);
    }
    for sent in right {
        assert_eq!(sent.await.unwrap().idempotency(), Some("replayed"));
    }
}

#[tokio::test]
async fn when_the_first_releases_its_key_one_duplicate_runs_in_its_stead() {
    let stage = Stage::with(|it| it.wait = Duration::from_mins(1), |it| it).await;
    let failing = "{\"act\":\"gate\",\"answer\":503}";
    let all: Vec<_> = (0..3)
        .map(|_| tokio::spawn(sends(&stage, failing)))
        .collect();
    for _ in 0..3 {
        stage.entered(1).await;
        assert_eq!(stage.effects().await, 0);
        stage.props.gate.add_permits(1);
    }
    for sent in all {
        assert_eq!(sent.await.unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!((stage.runs(), stage.effects().await), (3, 0));
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_its_answer_for_the_retry() {
    let stage = Stage::with(|it| it.wait = Duration::from_mins(1), |it| it).await;
    let client = tokio::spawn(sends(&stage, GATED));
    stage.entered(1).await;
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    let retry = tokio::spawn(sends(&stage, GATED));
    stage.props.gate.add_permits(1);
    assert_eq!(retry.await.unwrap().idempotency(), Some("replayed"));
    assert_eq!((stage.runs(), stage.effects().await), (1, 1));
}

#[tokio::test]
async fn a_handler_that_outlives_the_clients_time_is_rolled_back() {
    let stage = Stage::new().await;
    let began = Instant::now();
    let sent = stage.send(within("1500", "{\"act\":\"hang\"}")).await;
    sent.check_problem(504, "DEPENDENCY.timeout");
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "its own bound is 30 s"
    );
    assert_eq!(
        (stage.runs(), stage.effects().await, stage.events().await),
        (1, 0, 0)
    );
    assert_eq!(stage.post("k", "{}").await.idempotency(), Some("stored"));
}

#[tokio::test]
async fn a_handler_that_outlives_its_own_bound_is_rolled_back() {
    let stage = Stage::with(|it| it.handler_max = Duration::from_millis(50), |it| it).await;
    let sent = stage.post("k", "{\"act\":\"hang\"}").await;
    sent.check_problem(504, "DEPENDENCY.timeout");
    assert_eq!(stage.effects().await, 0);
}

#[tokio::test]
async fn a_client_without_time_gets_no_effect_but_a_replay() {
    let stage = Stage::new().await;
    let sent = stage.send(within("0", "{}")).await;
    sent.check_problem(504, "DEPENDENCY.timeout");
    assert_eq!(stage.effects().await, 0);
    assert_eq!(stage.post("k", "{}").await.idempotency(), Some("stored"));
    assert_eq!(
        stage.send(within("0", "{}")).await.idempotency(),
        Some("replayed")
    );
}

/// A transaction that is cut off costs its connection.
#[tokio::test]
async fn a_client_with_hardly_any_time_is_refused_before_the_claim() {
    let stage = Stage::new().await;
    for millis in ["1", "9"] {
        let sent = stage.send(within(millis, "{}")).await;
        sent.check_problem(504, "DEPENDENCY.timeout");
    }
    assert_eq!(stage.runs(), 0);
    assert_eq!(stage.post("k", "{}").await.idempotency(), Some("stored"));
}

#[tokio::test]
async fn a_body_that_trickles_beyond_the_clients_time_is_given_up() {
    let stage = Stage::new().await;
    let mut request = within("50", "");
    let never = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    *request.body_mut() = axum::body::Body::from_stream(never);
    stage
        .send(request)
        .await
        .check_problem(504, "DEPENDENCY.timeout");
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn a_wait_beyond_time_itself_is_a_wait() {
    let forever = |it: &mut hapax_http::Settings| {
        it.wait = Duration::MAX;
        it.handler_max = Duration::MAX;
    };
    let stage = Stage::with(forever, |it| it).await;
    let first = tokio::spawn(sends(&stage, GATED));
    stage.entered(1).await;
    let second = tokio::spawn(sends(&stage, GATED));
    stage.props.gate.add_permits(1);
    assert_eq!(first.await.unwrap().idempotency(), Some("stored"));
    assert_eq!(second.await.unwrap().idempotency(), Some("replayed"));
}

#[tokio::test]
async fn a_budget_that_does_not_parse_is_refused() {
    let stage = Stage::new().await;
    for bad in ["soon", "-1", "1.5", ""] {
        let sent = stage.send(within(bad, "{}")).await;
        sent.check_problem(400, "VALIDATION.request_timeout");
        assert_eq!(sent.header("idempotency-key"), Some("k"));
    }
    assert_eq!(stage.runs(), 0);
    assert_eq!(
        stage.send(within("60000", "{}")).await.status,
        StatusCode::CREATED
    );
}

fn within(millis: &str, body: &str) -> Request<axum::body::Body> {
    let mut request = post_json("/effects", "k", body);
    request
        .headers_mut()
        .insert("x-request-timeout", millis.parse().unwrap());
    request
}

fn sends(stage: &Stage, body: &str) -> impl Future<Output = Sent> + Send + 'static {
    send(stage.router.clone(), post_json("/effects", "k", body))
}
