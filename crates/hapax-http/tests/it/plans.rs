//! Tests of single-shot operations.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
    routing::post,
};
use hapax::{event::NewEvent, idempotency::OnFailure};
use hapax_http::{Json, Problem, Tx, WritePlan, problem};
use hapax_sqlite::Statement;
use http::StatusCode;
use std::{sync::atomic::Ordering, time::Duration};

use crate::stage::{Props, Stage, post_json, send};

#[tokio::test]
async fn a_plan_is_carried_out_once_and_replays() {
    let stage = stage().await;
    let mut first = plan(&stage, "k", "{}").await;
    assert_eq!(
        (first.status, first.idempotency()),
        (StatusCode::CREATED, Some("stored"))
    );
    first.headers.remove("set-cookie");
    plan(&stage, "k", "{}").await.check_replays(&first);
    assert_eq!(
        (stage.runs(), stage.effects().await, stage.events().await),
        (1, 1, 1)
    );
    let other = plan(&stage, "k", "{\"act\":\"other\"}").await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
}

#[tokio::test]
async fn a_storm_of_plans_is_carried_out_once() {
    let stage = staged(|it| it.wait = Duration::from_secs(30)).await;
    let storm: Vec<_> = (0..500)
        .map(|_| tokio::spawn(send(stage.router.clone(), post_json("/plans", "k", "{}"))))
        .collect();
    for sent in storm {
        assert_eq!(sent.await.unwrap().status, StatusCode::CREATED);
    }
    assert_eq!(
        (stage.runs(), stage.effects().await, stage.events().await),
        (1, 1, 1)
    );
}

#[tokio::test]
async fn many_keys_at_once_are_each_carried_out() {
    let stage = stage().await;
    let all: Vec<_> = (0..200)
        .map(|n| {
            tokio::spawn(send(
                stage.router.clone(),
                post_json("/plans", &n.to_string(), "{}"),
            ))
        })
        .collect();
    for sent in all {
        assert_eq!(sent.await.unwrap().idempotency(), Some("stored"));
    }
    assert_eq!((stage.effects().await, stage.events().await), (200, 200));
}

#[tokio::test]
async fn a_refusal_is_stored_without_carrying_anything_out() {
    let stage = stage().await;
    for status in [Some("stored"), Some("replayed")] {
        let sent = plan(&stage, "k", "{\"act\":\"refuse\"}").await;
        sent.check_problem(422, "CONFLICT.state");
        assert_eq!(sent.idempotency(), status);
    }
    let write_plan = plan(&stage, "l", "{\"act\":\"planned refusal\"}").await;
    assert_eq!(
        (write_plan.status.as_u16(), write_plan.idempotency()),
        (402, Some("stored"))
    );
    assert_eq!((stage.effects().await, stage.events().await), (0, 0));
}

#[tokio::test]
async fn the_callers_mistake_writes_nothing_and_a_known_key_still_says_mismatch() {
    let stage = stage().await;
    let mistake = "{\"act\":\"mistake\"}";
    plan(&stage, "k", mistake)
        .await
        .check_problem(400, "VALIDATION.member");
    assert_eq!(
        stage
            .count("SELECT count(*) FROM hapax_idempotency_key")
            .await,
        0
    );
    assert_eq!(plan(&stage, "k", "{}").await.idempotency(), Some("stored"));
    let router = cold(&stage);
    let sent = send(router, post_json("/plans", "k", mistake)).await;
    sent.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
}

#[tokio::test]
async fn a_plan_that_panics_or_fails_in_the_store_releases_the_key() {
    let stage = stage().await;
    let sent = plan(&stage, "k", "{\"act\":\"panic\"}").await;
    sent.check_problem(500, "TRANSIENT.internal");
    let sent = plan(&stage, "k", "{\"act\":\"bad event\"}").await;
    sent.check_problem(500, "TRANSIENT.internal");
    assert_eq!(plan(&stage, "k", "{}").await.idempotency(), Some("stored"));
    assert_eq!(stage.effects().await, 1);
}

#[tokio::test]
async fn a_plan_without_a_key_is_carried_out_unprotected() {
    let mut stage = Stage::new().await;
    let layer = stage
        .idempotency
        .operation("/plans")
        .optional()
        .single_shot();
    let handler = post(planning).layer(layer).with_state(stage.props.clone());
    stage.route("/plans", handler);
    for effects in 1..=2 {
        let sent = plan(&stage, "", "{}").await;
        assert_eq!(
            (sent.status, sent.idempotency()),
            (StatusCode::CREATED, Some("bypassed"))
        );
        assert_eq!(
            (stage.effects().await, stage.events().await),
            (effects, effects)
        );
    }
}

#[tokio::test]
async fn a_plan_that_nobody_would_carry_out_is_a_500() {
    let mut stage = Stage::new().await;
    let bare = post(planning).with_state(stage.props.clone());
    stage.route("/bare", bare);
    let layer = stage.idempotency.operation("/atomic");
    let atomic = post(planning).layer(layer).with_state(stage.props.clone());
    stage.route("/atomic", atomic);
    for path in ["/bare", "/atomic"] {
        let sent = stage.send(post_json(path, "k", "{}")).await;
        sent.check_problem(500, "TRANSIENT.internal");
    }
    assert_eq!(stage.effects().await, 0);
}

#[tokio::test]
async fn a_planning_handler_has_no_transaction() {
    let mut stage = Stage::new().await;
    let layer = stage.idempotency.operation("/tx").single_shot();
    stage.route(
        "/tx",
        post(async |_: Tx<hapax_sqlite::Tx>| "done").layer(layer),
    );
    let sent = stage.send(post_json("/tx", "k", "{}")).await;
    sent.check_problem(500, "TRANSIENT.internal");
}

#[tokio::test]
async fn a_plan_that_does_not_begin_in_the_clients_time_never_begins() {
    let stage = stage().await;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (held, holds) = tokio::sync::oneshot::channel();
    let store = stage.store.clone();
    let holding = tokio::spawn(async move {
        let occupy = move |_: &hapax_sqlite::rusqlite::Connection| {
            held.send(()).expect("the test waits for it");
            released.recv().expect("the test releases it");
            Ok(())
        };
        store.write(occupy).await
    });
    holds.await.unwrap();
    let mut request = post_json("/plans", "k", "{}");
    let headers = request.headers_mut();
    headers.insert("x-request-timeout", "100".parse().unwrap());
    let sent = stage.send(request).await;
    sent.check_problem(504, "DEPENDENCY.timeout");
    release.send(()).unwrap();
    holding.await.unwrap().unwrap();
    assert_eq!((stage.effects().await, stage.events().await), (0, 0));
    let retry = plan(&stage, "k", "{}").await;
    assert_eq!(retry.idempotency(), Some("stored"));
}

#[tokio::test]
async fn a_plan_that_fails_is_kept_where_the_service_says_so() {
    let stage = staged(|it| it.on_failure = OnFailure::Store).await;
    for (key, act, time) in [
        ("a", "panic", "30000"),
        ("b", "bad event", "30000"),
        ("c", "twice", "30000"),
        ("d", "hang", "100"),
    ] {
        let mut request = post_json("/plans", key, &format!("{{\"act\":\"{act}\"}}"));
        let time = time.parse().unwrap();
        request.headers_mut().insert("x-request-timeout", time);
        let first = stage.send(request).await;
        assert!(first.status.is_server_error(), "{act}: {first:?}");
        assert_eq!(first.idempotency(), Some("stored"), "{act}");
        assert_eq!(first.json()["retryable"], false, "{act}");
        let again = plan(&stage, key, &format!("{{\"act\":\"{act}\"}}")).await;
        again.check_replays(&first);
    }
    let left = (stage.runs(), stage.effects().await, stage.events().await);
    assert_eq!(left, (4, 0, 0));
}

async fn stage() -> Stage {
    staged(|_| {}).await
}

async fn staged(settings: impl FnOnce(&mut hapax_http::Settings)) -> Stage {
    let mut stage = Stage::with(settings, |it| it).await;
    let layer = stage.idempotency.operation("/plans").single_shot();
    let handler = post(planning).layer(layer).with_state(stage.props.clone());
    stage.route("/plans", handler);
    stage
}

/// The same service with an empty cache.
fn cold(stage: &Stage) -> axum::Router {
    let settings = hapax_http::Settings::new(stage.clock.clone(), stage.random.clone());
    let layer = hapax_http::Idempotency::new(stage.store.clone(), settings).operation("/plans");
    let handler = post(planning)
        .layer(layer.single_shot())
        .with_state(stage.props.clone());
    stage.named(axum::Router::new().route("/plans", handler))
}

async fn plan(stage: &Stage, key: &str, body: &str) -> crate::stage::Sent {
    stage.send(post_json("/plans", key, body)).await
}

async fn planning(
    State(props): State<Props>,
    Json(asked): Json<serde_json::Value>,
) -> Result<WritePlan<Statement>, Response> {
    props.runs.fetch_add(1, Ordering::SeqCst);
    let insert = Statement::new("INSERT INTO effect DEFAULT VALUES", []);
    let created = (StatusCode::CREATED, [("set-cookie", "a=1")], "planned");
    let write_plan = WritePlan::new(created).statement(insert.clone());
    match asked["act"].as_str() {
        Some("panic") => panic!("asked to"),
        Some("hang") => std::future::pending().await,
        Some("twice") => {
            let same = Statement::new("INSERT INTO effect VALUES (1)", []);
            Ok(write_plan.statement(same.clone()).statement(same))
        }
        Some("refuse") => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            Err(Problem::new(problem::CONFLICT)
                .status(status)
                .into_response())
        }
        Some("mistake") => Err(Problem::invalid("act", "is a mistake").into_response()),
        Some("planned refusal") => {
            Ok(WritePlan::new(StatusCode::PAYMENT_REQUIRED).statement(insert))
        }
        Some("bad event") => Ok(write_plan.emit(NewEvent::json("", &1))),
        _ => Ok(write_plan.emit(NewEvent::json("effect.done", &1))),
    }
}
