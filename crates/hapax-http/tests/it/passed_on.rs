//! Responses of another system that a phased handler passes on, as a gateway does.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::{
    Router,
    body::Body,
    response::{IntoResponse, Response},
    routing::post,
};
use hapax::{idempotency::KeyState, store::Keys};
use hapax_http::{
    Completer, Disposition, Json, KeepInProgress, Phased, Problem, Verbatim, problem,
};
use hapax_testkit::wait::eventually;
use http::StatusCode;

use crate::stage::{Stage, post_json, scope};

#[tokio::test]
async fn an_error_that_is_passed_on_stays_as_it_is() {
    let stage = stage().await;
    let first = stage.send(post_json("/relay", "k", "\"stored\"")).await;
    assert_eq!(
        (first.status, first.body.as_slice()),
        (StatusCode::NOT_FOUND, &b"gone"[..])
    );
    assert_eq!(first.header("content-type"), Some("text/plain"));
    assert_eq!(first.idempotency(), Some("stored"));
    let again = stage.send(post_json("/relay", "k", "\"stored\"")).await;
    again.check_replays(&first);
}

#[tokio::test]
async fn a_handler_that_does_not_know_the_outcome_keeps_its_key_in_progress() {
    let stage = stage().await;
    for _ in 0..2 {
        let unknown = stage.send(post_json("/relay", "k", "\"unknown\"")).await;
        unknown.check_problem(409, "CONFLICT.idempotency.outcome_unknown");
        assert_eq!(unknown.idempotency(), None);
        let row = stage
            .store
            .look_up(&scope("alice", "POST /relay", "k"))
            .await;
        let row = row.unwrap().unwrap();
        assert_eq!((row.state, row.response), (KeyState::InProgress, None));
        assert!(row.lease_until.is_none_or(|until| until <= row.read_at));
    }
}

#[tokio::test]
async fn the_mark_takes_precedence_over_a_disposition() {
    let stage = stage().await;
    stage.send(post_json("/relay", "k", "\"both\"")).await;
    let row = stage
        .store
        .look_up(&scope("alice", "POST /relay", "k"))
        .await;
    assert_eq!(row.unwrap().unwrap().state, KeyState::InProgress);
}

#[tokio::test]
async fn a_request_that_is_left_to_its_client_is_not_resumed() {
    let mut stage = Stage::new().await;
    let left = stage
        .idempotency
        .operation("/left")
        .phased()
        .left_to_client();
    let resumed = stage.idempotency.operation("/resumed").phased();
    let inside = Router::new()
        .route("/left", post(relay).layer(left))
        .route("/resumed", post(relay).layer(resumed));
    stage.router = stage.named(inside.clone());
    for path in ["/left", "/resumed"] {
        stage.send(post_json(path, "k", "\"once\"")).await;
    }
    let completer = Completer::new(&stage.idempotency, inside).grace(std::time::Duration::ZERO);
    let running = tokio::spawn(completer.run());
    let found = async |operation: &'static str| {
        let row = stage.store.look_up(&scope("alice", operation, "k")).await;
        row.unwrap().unwrap().state
    };
    eventually(std::time::Duration::from_secs(20), async || {
        found("POST /resumed").await == KeyState::Completed
    })
    .await;
    assert_eq!(found("POST /left").await, KeyState::InProgress);
    running.abort();
}

#[tokio::test]
async fn a_new_key_is_entered_at_the_recovery_point_of_its_request() {
    let stage = stage_of_first_phases().await;
    let first = stage.send(post_json("/first", "k", "\"unknown\"")).await;
    assert_eq!(first.body.as_slice(), b"sent /first 0, false");
    // The key keeps the recovery point of the first attempt, although that of the retry is another.
    let again = stage.send(post_json("/first", "k", "\"unknown\"")).await;
    assert_eq!(again.body.as_slice(), b"sent /first 0, true");
    let other = stage.send(post_json("/first", "l", "\"stored\"")).await;
    assert_eq!(other.body.as_slice(), b"sent /first 2, false");
    assert_eq!(other.idempotency(), Some("stored"));
}

#[tokio::test]
async fn a_key_with_a_first_phase_is_released_only_by_its_handler() {
    let stage = stage_of_first_phases().await;
    for (end, is_kept) in [("mistake", true), ("released", false)] {
        let refused = stage
            .send(post_json("/first", end, &format!("\"{end}\"")))
            .await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        let scope = scope("alice", "POST /first", end);
        let row = stage.store.look_up(&scope).await.unwrap();
        assert_eq!(row.is_some(), is_kept, "{end}");
    }
}

/// A stage whose handler shows its recovery point. That of each attempt has another number.
async fn stage_of_first_phases() -> Stage {
    let mut stage = Stage::new().await;
    let attempts = AtomicUsize::new(0);
    let layer = stage.idempotency.operation("/first").phased();
    let layer = layer.first_phase(move |parts| {
        let number = attempts.fetch_add(1, Ordering::SeqCst);
        Some(format!("sent {} {number}", parts.uri.path()))
    });
    stage.route("/first", post(first).layer(layer));
    stage
}

async fn first(phased: Phased<hapax_sqlite::Tx>, Json(end): Json<String>) -> Response {
    let point = phased.recovery_point().unwrap_or_default();
    let mut response = Response::new(Body::from(format!("{point}, {}", phased.is_resumed())));
    response.extensions_mut().insert(Verbatim);
    match end.as_str() {
        "unknown" => {
            response.extensions_mut().insert(KeepInProgress);
        }
        "mistake" => *response.status_mut() = StatusCode::BAD_REQUEST,
        "released" => {
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response.extensions_mut().insert(Disposition::Release);
        }
        _ => {}
    }
    response
}

async fn stage() -> Stage {
    let mut stage = Stage::new().await;
    let layer = stage.idempotency.operation("/relay").phased();
    stage.route("/relay", post(relay).layer(layer));
    stage
}

/// Commits a phase before it responds, as if it had called another system.
async fn relay(mut phased: Phased<hapax_sqlite::Tx>, Json(end): Json<String>) -> Response {
    let is_first = phased.recovery_point().is_none();
    if is_first && let Err(error) = phased.reach("sent").await {
        return Problem::from(error).into_response();
    }
    let mut response = if end == "unknown" {
        Problem::new(problem::OUTCOME_UNKNOWN).into_response()
    } else {
        let mut response = Response::new(Body::from("gone"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        let plain = http::HeaderValue::from_static("text/plain");
        response.headers_mut().insert("content-type", plain);
        response.extensions_mut().insert(Verbatim);
        response
    };
    let is_unknown = matches!(end.as_str(), "unknown" | "both") || (end == "once" && is_first);
    if is_unknown {
        response.extensions_mut().insert(KeepInProgress);
    }
    if end != "unknown" {
        response.extensions_mut().insert(Disposition::WithEffect);
    }
    response
}
