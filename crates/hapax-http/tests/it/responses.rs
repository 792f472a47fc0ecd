//! Tests of stored responses and replays, one for each rule of the HTTP contract.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{body::Body, response::IntoResponse, routing::post};
use hapax::{Stopwatch, Timestamp, idempotency::OnExpired};
use hapax_http::{Profile, Settings, header};
use hapax_testkit::clock::ManualClock;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};

use crate::stage::{Stage, post_json, scope};

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test]
async fn the_first_answer_is_stored_with_its_effect() {
    let stage = Stage::new().await;
    let first = stage.post("k", "{}").await;
    assert_eq!(first.status, StatusCode::CREATED);
    assert_eq!(first.idempotency(), Some("stored"));
    assert_eq!(first.header("idempotency-key"), Some("k"));
    assert_eq!(first.header("set-cookie"), Some("session=1"));
    assert_eq!((stage.effects().await, stage.events().await), (1, 1));
}

#[tokio::test]
async fn the_same_request_again_is_answered_byte_for_byte_and_runs_nothing() {
    for cache_bytes in [0, 1 << 20] {
        let stage = Stage::with(|it| it.cache_bytes = cache_bytes, |it| it).await;
        let mut first = stage.post("k", "{}").await;
        for name in ["set-cookie", "server"] {
            first.headers.remove(name);
        }
        for _ in 0..3 {
            stage.post("k", "{}").await.check_replays(&first);
        }
        assert_eq!((stage.runs(), stage.effects().await), (1, 1));
    }
}

#[tokio::test]
async fn binary_bodies_and_repeated_headers_survive_a_replay() {
    for cache_bytes in [0, 1 << 20] {
        let mut stage = Stage::with(|it| it.cache_bytes = cache_bytes, |it| it).await;
        let layer = stage.idempotency.operation("/binary");
        let answer = || async {
            let mut headers = HeaderMap::new();
            for link in ["<a>", "<b>", "<a>"] {
                headers.append("link", HeaderValue::from_static(link));
            }
            headers.append("x-raw", HeaderValue::from_bytes(b"caf\xe9: \xff").unwrap());
            headers.append("link", HeaderValue::from_static("<c>"));
            headers.append("x-empty", HeaderValue::from_static(""));
            let body: Vec<u8> = (0..=255).cycle().take(70_000).collect();
            (StatusCode::ACCEPTED, headers, body).into_response()
        };
        stage.route("/binary", post(answer).layer(layer));
        let first = stage.send(post_json("/binary", "k", "{}")).await;
        assert_eq!(first.body.len(), 70_000);
        assert_eq!(first.headers.get_all("link").iter().count(), 4);
        let again = stage.send(post_json("/binary", "k", "{}")).await;
        again.check_replays(&first);
    }
}

#[tokio::test]
async fn headers_that_the_service_lists_are_sent_once_and_not_stored() {
    let listed = [HeaderName::from_static("x-trace")];
    let stage = Stage::with(|_| {}, |layer| layer.per_request_headers(listed)).await;
    assert_eq!(
        stage.post("k", "{}").await.header("x-trace"),
        Some("per request")
    );
    let again = stage.post("k", "{}").await;
    assert_eq!(again.header("x-trace"), None);
    assert_eq!(again.header("set-cookie"), None);
    assert_eq!(again.header("location"), Some("/effects/1"));
}

#[tokio::test]
async fn the_profile_stripe_marks_replays_and_only_replays() {
    let stage = Stage::with(|it| it.profile = Profile::Stripe, |it| it).await;
    assert_eq!(
        stage.post("k", "{}").await.header("idempotent-replayed"),
        None
    );
    let again = stage.post("k", "{}").await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.idempotency(), Some("replayed"));
}

#[tokio::test]
async fn an_expired_key_runs_as_new_by_default() {
    let stage = Stage::with(|_| {}, |layer| layer.retention(HOUR)).await;
    stage.post("k", "{}").await;
    stage.pass(HOUR);
    let later = stage.post("k", "{\"answer\":202}").await;
    assert_eq!(later.status, StatusCode::ACCEPTED);
    assert_eq!(later.idempotency(), Some("stored"));
    assert_eq!(stage.effects().await, 2);
}

#[tokio::test]
async fn an_expired_key_is_gone_where_the_operation_says_so() {
    let gone =
        |layer: hapax_http::OperationLayer<_>| layer.retention(HOUR).on_expired(OnExpired::Gone);
    let stage = Stage::with(|_| {}, gone).await;
    stage.post("k", "{}").await;
    stage.pass(HOUR);
    stage
        .post("k", "{}")
        .await
        .check_problem(410, "CONFLICT.idempotency.expired");
    assert_eq!(stage.idempotency.purge().await.unwrap(), 1);
    stage
        .post("k", "{}")
        .await
        .check_problem(410, "CONFLICT.idempotency.expired");
    assert_eq!(stage.effects().await, 1);
}

#[tokio::test]
async fn a_stored_202_replays_as_that_202() {
    let stage = Stage::new().await;
    let mut first = stage.post("k", "{\"answer\":202}").await;
    first.headers.remove("set-cookie");
    first.headers.remove("server");
    let again = stage.post("k", "{\"answer\":202}").await;
    assert_eq!(again.status, StatusCode::ACCEPTED);
    again.check_replays(&first);
}

#[tokio::test]
async fn a_forgotten_key_runs_again_although_its_answer_was_cached() {
    let stage = Stage::new().await;
    stage.post("k", "{}").await;
    let key = scope("alice", "POST /effects", "k");
    assert!(stage.idempotency.forget(&key).await.unwrap());
    assert!(!stage.idempotency.forget(&key).await.unwrap());
    assert_eq!(stage.post("k", "{}").await.idempotency(), Some("stored"));
    assert_eq!(stage.effects().await, 2);
}

#[tokio::test]
async fn a_replay_from_the_store_fills_the_cache() {
    let mut stage = Stage::new().await;
    stage.post("k", "{}").await;
    // Another node: the same store, an empty cache.
    let other = hapax_http::Idempotency::new(
        stage.store.clone(),
        Settings::new(stage.clock.clone(), stage.random.clone()),
    );
    let never = || async { StatusCode::IM_A_TEAPOT };
    let layer = other.operation("/effects");
    stage.route("/node/{n}", post(never));
    let node = axum::Router::new().route("/effects", post(never).layer(layer));
    let node = stage.named(node);
    for _ in 0..2 {
        let again = crate::stage::send(node.clone(), post_json("/effects", "k", "{}")).await;
        assert_eq!(again.status, StatusCode::CREATED);
        assert_eq!(again.idempotency(), Some("replayed"));
        // The second replay comes from the cache, without the store.
        stage.store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_handler_does_not_say_how_its_answer_came_about() {
    let mut stage = Stage::new().await;
    for (status, said) in [
        (StatusCode::CREATED, Some("stored")),
        (StatusCode::CONFLICT, Some("stored")),
        // Nothing is stored. If the client read otherwise, it would forget a key whose outcome is
        // unknown.
        (StatusCode::INTERNAL_SERVER_ERROR, None),
    ] {
        let path = format!("/claims/{}", status.as_u16());
        let answer = move || async move {
            let claims = [
                ("idempotency-status", "replayed"),
                ("idempotent-replayed", "true"),
                ("idempotency-key", "other"),
                ("x-mine", "1"),
            ];
            (status, claims, "{}")
        };
        let layer = stage.idempotency.operation(&path).optional();
        stage.route(&path, post(answer).layer(layer));
        for (key, said) in [("k", said), ("", Some("bypassed"))] {
            let sent = stage.send(post_json(&path, key, "{}")).await;
            assert_eq!((sent.status, sent.idempotency()), (status, said), "{key:?}");
            assert_eq!(sent.header("idempotent-replayed"), None);
            assert_ne!(sent.header("idempotency-key"), Some("other"));
            assert_eq!(sent.header("x-mine"), Some("1"));
        }
        let again = stage.send(post_json(&path, "k", "{}")).await;
        assert_eq!(again.idempotency(), said.map(|_| "replayed"));
    }
}

#[test]
fn the_readme_lists_the_headers_to_expose_with_cors() {
    for name in [
        "idempotency-key",
        "idempotency-status",
        "idempotent-replayed",
        "retry-after",
    ] {
        assert!(
            header::EXPOSED_HEADERS
                .iter()
                .any(|exposed| exposed == name),
            "{name}"
        );
    }
}

#[tokio::test]
async fn other_methods_pass_untouched_and_put_and_delete_until_they_are_named() {
    let stage = Stage::new().await;
    for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "QUERY"] {
        let request = Request::builder().method(method).uri("/effects");
        let sent = stage.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(sent.idempotency(), None, "{method}");
        assert_ne!(sent.status, StatusCode::BAD_REQUEST, "{method}");
    }
    let stage = Stage::with(|_| {}, |layer| layer.also(http::Method::PUT)).await;
    let put = |key: Option<&str>| {
        let request = Request::put("/effects");
        let request = match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        };
        request.body(Body::empty()).unwrap()
    };
    stage
        .send(put(None))
        .await
        .check_problem(400, "VALIDATION.idempotency_key.missing");
    assert_eq!(
        stage.send(put(Some("k"))).await.idempotency(),
        Some("stored")
    );
    assert_eq!(
        stage.send(put(Some("k"))).await.idempotency(),
        Some("replayed")
    );
    // Another method is another operation, in which the key is free.
    assert_eq!(stage.post("k", "{}").await.idempotency(), Some("stored"));
}

/// The store determines how long a response is fresh, independently of this machine's wall clock.
#[tokio::test]
async fn an_answer_is_not_replayed_from_memory_beyond_its_time_when_the_clock_was_set_back() {
    let wall = ManualClock::new();
    let passed = Arc::new(AtomicU64::new(0));
    let (shown, read) = (wall.clock(), Arc::clone(&passed));
    let settings = move |it: &mut Settings| {
        it.clock = shown;
        it.stopwatch = Stopwatch::new(move || Duration::from_secs(read.load(Ordering::SeqCst)));
    };
    let short = Duration::from_secs(20);
    let stage = Stage::with(settings, |layer| layer.retention(short)).await;
    stage.post("k", "{}").await;
    wall.set(Timestamp::from_millis(wall.now().as_millis() - 3_600_000));
    stage.pass(Duration::from_secs(19));
    passed.store(19, Ordering::SeqCst);
    assert_eq!(stage.post("k", "{}").await.idempotency(), Some("replayed"));
    stage.pass(Duration::from_secs(7));
    passed.store(26, Ordering::SeqCst);
    assert_eq!(stage.post("k", "{}").await.idempotency(), Some("stored"));
    assert_eq!(stage.effects().await, 2);
}
