//! Tests of phased operations: crashes, failures, fenced owners, and requests that are resumed.

mod released;
mod owners;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Extension, Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::post,
};
use hapax::{
    event::NewEvent,
    idempotency::{KeyRecord, KeyState},
    key::Tenant,
    quota::Quota,
    store::{Keys, StoreError},
};
use hapax_http::{
    Disposition, Idempotency, Json, OperationLayer, Phased, Problem, Settings, problem,
};
use hapax_sqlite::Sqlite;
use hapax_testkit::wait::pace;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::{
    log::{self, check_line},
    stage::{Sent, Stage, post_json, scope, send},
};

const PATIENCE: Duration = Duration::from_secs(20);
/// How long a slow handler keeps a phase open. A short lease is renewed within this time.
const DAWDLING: Duration = Duration::from_millis(200);

/// The state that the handler shares with its test: a remote system, and gates.
#[derive(Clone)]
struct Far {
    runs: Arc<AtomicU64>,
    /// The provider key of every call.
    calls: Arc<Mutex<Vec<String>>>,
    /// The results of `nothing_happened`.
    believed: Arc<Mutex<Vec<bool>>>,
    /// Whether each run was resumed after an earlier owner.
    resumed: Arc<Mutex<Vec<bool>>>,
    entered: Arc<Semaphore>,
    gate: Arc<Semaphore>,
    /// Has a permit for each handler that has ended or was dropped.
    left: Arc<Semaphore>,
    seen: Arc<Mutex<Vec<(String, HeaderMap)>>>,
}

/// One of several nodes on the stage's store.
struct Node {
    router: Router,
    /// The same routes without authentication.
    inside: Router,
    idempotency: Idempotency<Sqlite>,
}

#[derive(Deserialize)]
struct Payment {
    /// How the first run fails or waits, and where.
    #[serde(default)]
    first: String,
    /// How every run ends.
    #[serde(default)]
    end: String,
}

#[tokio::test]
async fn a_phased_request_is_stored_once_and_replays() {
    let (stage, far, node) = scene().await;
    let first = pay(&node, "k", "{}").await;
    assert_eq!(
        (first.status, first.idempotency()),
        (StatusCode::CREATED, Some("stored"))
    );
    pay(&node, "k", "{}").await.check_replays(&first);
    pay(&self::node(&stage, &far, |_| {}), "k", "{}")
        .await
        .check_replays(&first);
    check(&stage, &far, 1, 1, 2).await;
    let kept = "SELECT count(request) FROM hapax_idempotency_key";
    assert_eq!(
        stage.count(kept).await,
        0,
        "the request is deleted after it has completed"
    );
    let other = pay(&node, "k", "{\"end\":\"x\"}").await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
}

#[tokio::test]
async fn a_run_that_fails_behind_a_phase_is_resumed_there_at_once() {
    for first in ["503 behind", "panic behind", "429 behind"] {
        let (stage, far, node) = scene().await;
        let body = format!("{{\"first\":\"{first}\"}}");
        let failed = pay(&node, "k", &body).await;
        assert!(
            !failed.status.is_success() && failed.idempotency().is_none(),
            "{first}"
        );
        let other = pay(&node, "k", "{}").await;
        other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
        let retry = pay(&node, "k", &body).await;
        assert_eq!(
            (retry.status, retry.idempotency()),
            (StatusCode::CREATED, Some("stored"))
        );
        check(&stage, &far, 2, 1, 2).await;
    }
}

#[tokio::test]
async fn the_lines_of_a_request_that_is_resumed_contain_the_states_of_its_key() {
    log::listen();
    let (_stage, _far, node) = scene().await;
    drop(log::take());
    let body = "{\"first\":\"503 behind\"}";
    pay(&node, "k", body).await;
    let kept = "from_state=\"free\" to_state=\"in_progress\"";
    check_line(&["outcome=\"store_error\" status=503", kept]);
    pay(&node, "k", body).await;
    let completed = "from_state=\"in_progress\" to_state=\"completed\"";
    check_line(&["outcome=\"created\" status=201", completed]);
}

#[tokio::test]
async fn a_run_that_fails_before_its_first_phase_calls_out_under_the_same_key_again() {
    for first in ["503", "panic", "429"] {
        let (stage, far, node) = scene().await;
        let body = format!("{{\"first\":\"{first}\"}}");
        assert!(!pay(&node, "k", &body).await.status.is_success());
        stage.pass(Duration::from_millis(1));
        assert_eq!(pay(&node, "k", &body).await.idempotency(), Some("stored"));
        check(&stage, &far, 2, 2, 2).await;
        let calls = far.calls.lock().unwrap();
        assert_eq!(calls[0], calls[1]);
    }
}

#[tokio::test]
async fn a_run_that_outlives_its_clients_time_is_resumed_at_once() {
    let (stage, far, node) = scene().await;
    let body = "{\"first\":\"hang behind\"}";
    let mut request = post_json("/payments", "k", body);
    let headers = request.headers_mut();
    headers.insert("x-request-timeout", "2000".parse().unwrap());
    headers.insert("if-match", "\"7\"".parse().unwrap());
    let late = send(node.router.clone(), request).await;
    late.check_problem(504, "DEPENDENCY.timeout");
    assert_eq!(pay(&node, "k", body).await.idempotency(), Some("stored"));
    check(&stage, &far, 2, 1, 2).await;
}

#[tokio::test]
async fn a_refusal_is_stored_and_drops_its_last_phase_alone() {
    let (stage, far, node) = scene().await;
    let first = pay(&node, "k", "{\"end\":\"decline\"}").await;
    first.check_problem(402, "CONFLICT.state");
    assert_eq!(first.idempotency(), Some("stored"));
    let again = pay(&node, "k", "{\"end\":\"decline\"}").await;
    assert_eq!(
        (again.idempotency(), &again.body),
        (Some("replayed"), &first.body)
    );
    check(&stage, &far, 1, 1, 1).await;
}

#[tokio::test]
async fn who_goes_on_knows_that_somebody_had_the_key_before() {
    let (_stage, far, node) = scene().await;
    let body = "{\"first\":\"503\"}";
    assert!(!pay(&node, "k", body).await.status.is_success());
    assert_eq!(pay(&node, "k", body).await.idempotency(), Some("stored"));
    assert_eq!(*far.resumed.lock().unwrap(), [false, true]);
}

#[tokio::test]
async fn a_last_phase_that_is_kept_beyond_the_answer_is_a_failure() {
    let (stage, _, node) = scene().await;
    let kept = pay(&node, "k", "{\"end\":\"keep\"}").await;
    kept.check_problem(500, "TRANSIENT.internal");
    assert_eq!(row(&stage, "k").await.unwrap().state, KeyState::InProgress);
}

#[tokio::test]
async fn a_key_counts_for_its_quota_from_its_entry_and_once() {
    let (stage, far) = stage().await;
    let quota = Quota {
        keys: Some(2),
        bytes: None,
    };
    let node = node(&stage, &far, |settings| settings.quota = quota);
    let body = r#"{"first":"503"}"#;
    assert_eq!(pay(&node, "1", body).await.status, 503);
    // The key exists, and its request is resumed when it is sent again. It counts as one key.
    assert_eq!(pay(&node, "1", body).await.status, 201);
    assert_eq!(pay(&node, "2", "{}").await.status, 201);
    let refused = pay(&node, "3", "{}").await;
    refused.check_problem(429, "RATE_LIMIT.quota");
    node.idempotency.count_usage().await.unwrap();
    pay(&node, "3", "{}")
        .await
        .check_problem(429, "RATE_LIMIT.quota");
    assert_eq!(pay(&node, "1", body).await.idempotency(), Some("replayed"));
}

#[tokio::test]
async fn a_phased_operation_needs_a_key_and_a_handler_its_phases() {
    let (mut stage, far) = stage().await;
    let layer = stage.idempotency.operation("/payments").phased().optional();
    let routes = post(payment).with_state(far.clone()).layer(layer);
    stage.route("/payments", routes);
    let missing = stage.send(post_json("/payments", "", "{}")).await;
    missing.check_problem(400, "VALIDATION.idempotency_key.missing");
    let atomic = stage.idempotency.operation("/atomic");
    stage.route("/atomic", post(payment).with_state(far).layer(atomic));
    let unmarked = stage.send(post_json("/atomic", "k", "{}")).await;
    unmarked.check_problem(500, "TRANSIENT.internal");
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_runs_no_phases() {
    let (stage, far) = stage().await;
    let open = |it: &mut Settings| it.on_store_error = hapax::idempotency::OnStoreError::Open;
    let node = node(&stage, &far, open);
    stage.lose_the_keys().await;
    pay(&node, "k", "{}")
        .await
        .check_problem(503, "DEPENDENCY.unavailable");
    assert_eq!(far.runs(), 0);
}

#[tokio::test]
#[should_panic(expected = "is a credential")]
async fn a_credential_is_never_kept() {
    let stage = Stage::new().await;
    let phased = stage.idempotency.operation("/payments").phased();
    let _layer = phased.kept_headers([http::header::COOKIE]);
}

/// Charges in a remote system, then writes one row and one event in a phase, and again in the last
/// phase.
async fn payment(
    State(far): State<Far>,
    Extension(tenant): Extension<Tenant>,
    mut phased: Phased<hapax_sqlite::Tx>,
    headers: HeaderMap,
    Json(payment): Json<Payment>,
) -> Result<Response, Problem> {
    let is_first = far.runs.fetch_add(1, Ordering::SeqCst) == 0;
    let seen = (tenant.as_str().to_owned(), headers);
    far.seen.lock().unwrap().push(seen);
    far.resumed.lock().unwrap().push(phased.is_resumed());
    let _leaving = Leaving(Arc::clone(&far.left));
    let first = if is_first { payment.first.as_str() } else { "" };
    if first == "mistake" {
        return Err(Problem::invalid("amount", "is too much"));
    }
    if phased.recovery_point().is_none() {
        let key = phased.provider_key("charge");
        far.calls.lock().unwrap().push(key);
        far.strike(first).await?;
        if payment.end.starts_with("nothing") {
            far.deny(&phased, &payment.end)?;
        }
        let name = match payment.end.as_str() {
            "nothing, then no phase" => "",
            _ => "charged",
        };
        let dawdles = first == "dawdle";
        let charged = phased.phase(name, async |tx| {
            write(tx).await?;
            if dawdles {
                pace(DAWDLING).await;
            }
            Ok(())
        });
        let charged: Result<(), Problem> = charged.await;
        if payment.end != "ignore" {
            charged?;
        }
    }
    assert!(payment.end == "ignore" || phased.recovery_point().as_deref() == Some("charged"));
    far.strike(first.strip_suffix(" behind").unwrap_or_default())
        .await?;
    if payment.end == "nothing, then a phase" {
        return Err(Problem::new(problem::UNAVAILABLE));
    }
    if payment.end == "undone" {
        far.deny(&phased, "nothing")?;
    }
    if payment.end == "ignore" {
        return Ok(StatusCode::CREATED.into_response());
    }
    let mut last = phased.last().await?;
    write(&mut last).await?;
    match payment.end.as_str() {
        "dawdle" => {
            pace(DAWDLING).await;
            Ok(StatusCode::CREATED.into_response())
        }
        "decline" => Err(Problem::new(problem::CONFLICT).status(StatusCode::PAYMENT_REQUIRED)),
        "release" => Ok((Extension(Disposition::Release), StatusCode::BAD_GATEWAY).into_response()),
        "keep" => {
            std::mem::forget(last);
            Ok(StatusCode::CREATED.into_response())
        }
        _ => Ok((StatusCode::CREATED, [("location", "/payments/1")], "paid").into_response()),
    }
}

async fn write(tx: &mut hapax_sqlite::Tx) -> Result<(), Problem> {
    tx.with(|db| db.execute("INSERT INTO effect DEFAULT VALUES", []))
        .await?;
    hapax::store::Transaction::emit(tx, NewEvent::json("effect.done", &1))?;
    Ok(())
}

impl Far {
    /// Fails or waits in the middle of a run, as `what` says.
    async fn strike(&self, what: &str) -> Result<(), Problem> {
        match what {
            "503" => {
                return Err(StoreError::unavailable("asked to").into());
            }
            "429" => return Err(Problem::new(problem::RATE_LIMIT)),
            "panic" => panic!("asked to"),
            "gate" => {
                self.entered.add_permits(1);
                self.gate.acquire().await.unwrap().forget();
            }
            "hang" => {
                self.entered.add_permits(1);
                std::future::pending::<()>().await;
            }
            _ => {}
        }
        Ok(())
    }

    /// Declares that nothing happened, and fails unless a phase is to follow.
    fn deny(&self, phased: &Phased<hapax_sqlite::Tx>, end: &str) -> Result<(), Problem> {
        let is_believed = phased.nothing_happened();
        self.believed.lock().unwrap().push(is_believed);
        if end == "nothing, then a call" {
            phased.provider_key("refund");
        }
        if end.ends_with("phase") {
            return Ok(());
        }
        Err(Problem::new(problem::UNAVAILABLE))
    }

    fn runs(&self) -> u64 {
        self.runs.load(Ordering::SeqCst)
    }

    async fn entered(&self, runs: u32) {
        self.entered.acquire_many(runs).await.unwrap().forget();
    }
}

/// Adds a permit when the handler ends or is dropped.
struct Leaving(Arc<Semaphore>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

async fn scene() -> (Stage, Far, Node) {
    let (stage, far) = stage().await;
    let node = node(&stage, &far, |_| {});
    (stage, far, node)
}

async fn stage() -> (Stage, Far) {
    let far = Far {
        runs: Arc::default(),
        calls: Arc::default(),
        believed: Arc::default(),
        resumed: Arc::default(),
        entered: Arc::new(Semaphore::new(0)),
        gate: Arc::new(Semaphore::new(0)),
        left: Arc::new(Semaphore::new(0)),
        seen: Arc::default(),
    };
    (Stage::new().await, far)
}

/// Creates a node on the stage's store, with a separate single-flight map and cache.
fn node(stage: &Stage, far: &Far, set: impl FnOnce(&mut Settings)) -> Node {
    node_with(stage, far, set, |layer| layer)
}

fn node_with(
    stage: &Stage,
    far: &Far,
    set: impl FnOnce(&mut Settings),
    policy: impl FnOnce(OperationLayer<Sqlite>) -> OperationLayer<Sqlite>,
) -> Node {
    let mut settings = Settings::new(stage.clock.clone(), stage.random.clone());
    set(&mut settings);
    let idempotency = Idempotency::new(stage.store.clone(), settings);
    let layer = policy(idempotency.operation("/payments").phased());
    let layer = layer.kept_headers([http::HeaderName::from_static("x-mine")]);
    let inside = Router::new()
        .route("/payments", post(payment).layer(layer))
        .with_state(far.clone());
    Node {
        router: stage.named(inside.clone()),
        inside,
        idempotency,
    }
}

async fn pay(node: &Node, key: &str, body: &str) -> Sent {
    sends(node, key, body).await
}

fn sends(node: &Node, key: &str, body: &str) -> impl Future<Output = Sent> + Send + 'static {
    let mut request = post_json("/payments", key, body);
    let headers = request.headers_mut();
    headers.insert("authorization", "alice/secret".parse().unwrap());
    headers.insert("x-mine", "kept".parse().unwrap());
    headers.insert("x-other", "not kept".parse().unwrap());
    headers.insert("if-match", "\"7\"".parse().unwrap());
    send(node.router.clone(), request)
}

async fn row(stage: &Stage, key: &str) -> Option<KeyRecord> {
    let scope = scope("alice", "POST /payments", key);
    stage.store.look_up(&scope).await.unwrap()
}

async fn check(stage: &Stage, far: &Far, runs: u64, calls: usize, effects: i64) {
    assert_eq!(far.runs(), runs, "runs");
    assert_eq!(far.calls.lock().unwrap().len(), calls, "calls");
    assert_eq!(
        (stage.effects().await, stage.events().await),
        (effects, effects)
    );
}
