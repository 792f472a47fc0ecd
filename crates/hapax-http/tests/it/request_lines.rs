//! Tests of the request log: one line for each request, on both stores, without secrets.

use std::{io, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::State, routing::post};
use futures_util::{FutureExt as _, stream};
use hapax::{
    idempotency::{OnExpired, OnStoreError},
    key::{Tenant, short_hash},
    request_log::{LineLevel, RequestLog},
    store::Keys,
};
use hapax_http::{Idempotency, RequestIds, Settings};
use hapax_postgres::Postgres;
use hapax_sqlite::Sqlite;
use hapax_testkit::{
    clock::{seeded_random, system_clock},
    postgres::Database,
    wait::eventually,
};
use http::{Request, StatusCode};
use tokio::sync::Semaphore;

use crate::{
    log::{self, check_line, lines},
    stage::{Stage, post_json, send},
};

const GATED: &str = "{\"act\":\"gate\"}";
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn every_request_writes_one_line_with_its_outcome_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    let settings = hapax_sqlite::Settings::new(path, system_clock(), seeded_random(1));
    check_outcomes(&Sqlite::open(settings).unwrap()).await;
}

#[tokio::test]
async fn every_request_writes_one_line_with_its_outcome_on_postgresql() {
    let database = Database::fresh().await;
    let settings = hapax_postgres::Settings::new(database.url(), system_clock(), seeded_random(1));
    check_outcomes(&Postgres::open(settings).await.unwrap()).await;
}

/// Sends requests with each outcome to nodes on this store. A node that did not execute a request
/// does not have its response in memory.
async fn check_outcomes<K: Keys>(store: &K) {
    log::listen();
    let (gate, entered) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let [one, two] = [(); 2].map(|()| node(store, &gate, &entered, RequestLog::default()));
    let ask = |node: &Router, key: &str, body: &str| send(node.clone(), request(key, body));
    let hash = format!("key_hash=\"{}\"", short_hash("planted-key"));
    let known = [
        "request operation=\"POST /notes\"",
        hash.as_str(),
        "request_id=\"req-1\"",
        "correlation_id=\"corr-1\"",
        "tenant=\"all\"",
        "attempt=2",
        "duration_us=",
    ];

    ask(&one, "planted-key", "planted-payload").await;
    check_line(&known);
    ask(&two, "planted-key", "planted-payload").await;
    let completed = "status=201 from_state=\"completed\" to_state=\"completed\"";
    check_line(&[&known[..], &["outcome=\"replayed\"", completed]].concat());
    ask(&two, "planted-key", "planted-payload").await;
    check_line(&[&known[..], &["outcome=\"replayed\"", completed]].concat());
    ask(&two, "planted-key", "another").await;
    let mismatch = "error_code=\"CONFLICT.idempotency.payload_mismatch\"";
    check_line(&[&known[..], &["outcome=\"mismatch\" status=409", mismatch]].concat());
    ask(&one, "new", "created").await;
    check_line(&["outcome=\"created\" status=201 from_state=\"free\" to_state=\"completed\""]);
    ask(&one, "bad", "bad").await;
    let free = "from_state=\"free\" to_state=\"free\"";
    check_line(&["outcome=\"released\" status=400", free]);
    ask(&one, "", "without a key").await;
    check_line(&["outcome=\"bypassed\" status=201 attempt=2"]);
    ask(&one, "\"", "an invalid key").await;
    let refused = "status=400 error_code=\"VALIDATION.idempotency_key.invalid\"";
    check_line(&["outcome=\"refused\"", refused]);

    let first = tokio::spawn(ask(&one, "slow", "gate"));
    entered.acquire().await.unwrap().forget();
    ask(&one, "slow", "gate").await;
    let running = "from_state=\"in_progress\" to_state=\"in_progress\"";
    check_line(&["outcome=\"in_progress\" status=409", running]);
    gate.add_permits(1);
    assert_eq!(first.await.unwrap().status, StatusCode::CREATED);
    check_line(&["outcome=\"created\""]);
}

#[tokio::test]
async fn an_expired_key_and_a_store_that_fails_are_outcomes_too() {
    log::listen();
    let stage = Stage::with(|_| {}, |layer| layer.on_expired(OnExpired::Gone)).await;
    stage.post("k", "{}").await;
    stage.pass(Duration::from_hours(24));
    drop(log::take());
    stage.post("k", "{}").await;
    check_line(&["outcome=\"gone\" status=410", "to_state=\"tombstone\""]);
    stage.lose_the_keys().await;
    stage.post("lost", "{}").await;
    let down = "status=503 error_code=\"DEPENDENCY.unavailable\"";
    check_line(&["outcome=\"store_error\"", down]);
}

#[tokio::test]
async fn a_request_that_runs_without_its_store_says_which_key_it_had() {
    log::listen();
    let open = |it: &mut Settings| it.on_store_error = OnStoreError::Open;
    let stage = Stage::with(open, |layer| layer).await;
    stage.lose_the_keys().await;
    drop(log::take());
    stage.post("k", "{}").await;
    let hash = format!("key_hash=\"{}\"", short_hash("k"));
    check_line(&["outcome=\"failed_open\" status=201", hash.as_str()]);
}

#[tokio::test]
async fn a_client_that_disconnects_leaves_a_line() {
    log::listen();
    let stage = Stage::new().await;
    let request = post_json("/effects", "k", GATED);
    let first = tokio::spawn(send(stage.router.clone(), request));
    stage.entered(1).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    stage.props.gate.add_permits(1);
    let mut log = String::new();
    eventually(PATIENCE, async || {
        log.push_str(&log::take());
        !lines(&log).is_empty()
    })
    .await;
    assert!(lines(&log)[0].contains("outcome=\"created\""), "{log}");
}

#[tokio::test]
async fn a_client_that_disconnects_while_its_body_is_read_leaves_a_line() {
    log::listen();
    let stage = Stage::new().await;
    let mut request = post_json("/effects", "k", "");
    *request.body_mut() = Body::from_stream(stream::pending::<Result<Vec<u8>, io::Error>>());
    // The request is dropped after it has been polled once.
    let sent = send(stage.router.clone(), request).now_or_never();
    assert!(sent.is_none());
    let hash = format!("key_hash=\"{}\"", short_hash("k"));
    let incomplete = "outcome=\"refused\" status=400 error_code=\"VALIDATION.body.incomplete\"";
    check_line(&[incomplete, hash.as_str()]);
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn a_panic_while_a_request_is_read_is_not_logged_as_a_client_that_disconnects() {
    log::listen();
    let stage = Stage::with(
        |_| {},
        |layer| layer.derived(|_| panic!("a broken function")),
    )
    .await;
    let request = post_json("/effects", "", "{}");
    let sent = tokio::spawn(send(stage.router.clone(), request)).await;
    assert!(sent.is_err_and(|error| error.is_panic()));
    let log = log::take();
    assert!(!log.contains("VALIDATION.body.incomplete"), "{log}");
}

#[tokio::test]
async fn nothing_that_is_logged_at_any_level_contains_the_key_or_the_payload() {
    log::listen();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    let settings = hapax_sqlite::Settings::new(path, system_clock(), seeded_random(1));
    let store = Sqlite::open(settings).unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let node = node(&store, &gate, &gate, RequestLog::default());
    for (key, body) in [
        ("planted-key", "planted-payload"),
        ("planted-key", "planted-payload"),
        ("planted-key", "planted-mismatch"),
        ("planted-other", "bad planted-payload"),
        ("", "planted-payload"),
        ("\"planted-invalid", "planted-payload"),
    ] {
        send(node.clone(), request(key, body)).await;
    }
    let log = log::take();
    assert_eq!(lines(&log).len(), 6, "{log}");
    assert!(!log.contains("planted"), "{log}");
}

#[tokio::test]
async fn a_span_has_the_hash_of_its_key_in_every_outcome_and_the_number_of_its_attempt() {
    log::listen();
    let stage = Stage::with(|it| it.wait = Duration::from_millis(10), |it| it).await;
    let hash = format!("idempotency.key_hash=\"{}\"", short_hash("k"));
    let check = |outcome: &str, key_hash: &str| {
        let (log, outcome) = (log::take(), format!("idempotency.outcome=\"{outcome}\""));
        let is_closed = |line: &&str| line.contains("close ") && line.contains(&outcome);
        let closed = log.lines().find(is_closed);
        let closed = closed.unwrap_or_else(|| panic!("no span with {outcome}: {log}"));
        assert!(closed.contains(key_hash), "{closed}");
        assert!(closed.contains("attempt=3"), "{closed}");
    };
    let ask = |key: &'static str, body: &str| {
        let mut request = post_json("/effects", key, body);
        let third = "3".parse().unwrap();
        request.headers_mut().insert("idempotency-attempt", third);
        send(stage.router.clone(), request)
    };
    ask("k", "{}").await;
    check("created", &hash);
    ask("k", "{}").await;
    check("replayed", &hash);
    ask("k", "{\"answer\":200}").await;
    check("mismatch", &hash);
    let first = tokio::spawn(ask("slow", GATED));
    stage.entered(2).await;
    let hash = format!("idempotency.key_hash=\"{}\"", short_hash("slow"));
    ask("slow", GATED).await;
    check("in_progress", &hash);
    ask("slow", "{}").await;
    check("mismatch", &hash);
    stage.props.gate.add_permits(1);
    first.await.unwrap();
}

#[tokio::test]
async fn the_level_turns_the_lines_off_and_the_sample_leaves_out_the_ordinary_ones() {
    let sample = |level, sample| RequestLog { level, sample };
    check_log(sample(LineLevel::Off, 1.0), [None, None]).await;
    check_log(sample(LineLevel::Info, 0.0), [None, Some("INFO")]).await;
    check_log(sample(LineLevel::Debug, 1.0), [Some("DEBUG"); 2]).await;
    check_log(RequestLog::default(), [Some("INFO"); 2]).await;
}

/// Checks the levels of the lines of a request that succeeds and of a mismatch.
async fn check_log(settings: RequestLog, expected: [Option<&str>; 2]) {
    log::listen();
    let stage = Stage::with(|it| it.log = settings, |it| it).await;
    for (body, expected) in ["{}", "{\"answer\":200}"].into_iter().zip(expected) {
        stage.post("k", body).await;
        let log = log::take();
        let level = log.lines().find(|line| line.contains("hapax::requests"));
        let level = level.and_then(|line| line.split_whitespace().nth(1));
        assert_eq!(level, expected, "{settings:?} {log}");
    }
}

/// A node of a service whose handler waits at the gate if its body says so.
fn node<K: Keys>(
    store: &K,
    gate: &Arc<Semaphore>,
    entered: &Arc<Semaphore>,
    log: RequestLog,
) -> Router {
    let random = seeded_random(1);
    let mut settings = Settings::new(system_clock(), random.clone());
    settings.tenant = Some(Tenant::new("all").unwrap());
    settings.wait = Duration::from_millis(10);
    settings.log = log;
    let operation = Idempotency::new(store.clone(), settings).operation("/notes");
    Router::new()
        .route("/notes", post(note).layer(operation.optional()))
        .with_state([Arc::clone(gate), Arc::clone(entered)])
        .layer(RequestIds::new(random))
}

async fn note(
    State([gate, entered]): State<[Arc<Semaphore>; 2]>,
    body: String,
) -> (StatusCode, String) {
    if body == "gate" {
        entered.add_permits(1);
        gate.acquire().await.unwrap().forget();
    }
    let status = if body.starts_with("bad") {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::CREATED
    };
    (status, body)
}

/// The second attempt of a request, with secrets in its headers.
fn request(key: &str, body: &str) -> Request<Body> {
    let request = Request::post("/notes")
        .header("authorization", "Bearer planted-token")
        .header("x-request-id", "req-1")
        .header("x-correlation-id", "corr-1")
        .header("idempotency-attempt", "2");
    let request = match key {
        "" => request,
        key => request.header("idempotency-key", key),
    };
    request.body(Body::from(body.to_owned())).unwrap()
}
