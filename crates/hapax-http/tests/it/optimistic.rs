//! Optimistic claims: a handler that touches nothing but its transaction starts before its key is
//! claimed, and a run that does not commit leaves nothing.
//!
//! Each node has its own store, its own connections and no response in memory.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    routing::{MethodRouter, post},
};
use futures_util::{StreamExt as _, future::join_all};
use hapax::{
    event::NewEvent,
    idempotency::{OnFailure, OnStoreError},
    key::Tenant,
};
use hapax_http::{ConflictOn as _, Idempotency, Json, Problem, RequestIds, Settings, Tx, problem};
use hapax_sqlite::Sqlite;
use hapax_testkit::clock::{ManualClock, seeded_random, system_clock};
use http::{HeaderValue, Request, StatusCode};
use serde::Deserialize;

use crate::{
    log,
    metrics::count,
    parcels::{ID, INSERT, Runs, Service, TABLE, check},
    stage::{Sent, post_json, send},
};

/// A parcel to be inserted, and how the handler ends.
#[derive(Deserialize)]
struct Parcel {
    id: String,
    #[serde(default)]
    act: String,
}

/// How the nodes of a test claim their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimKind {
    Regular,
    Pipelined,
    Optimistic,
}

impl Service {
    async fn node(&self, kind: ClaimKind) -> Router {
        self.node_with(kind, |_| {}).await
    }

    async fn node_with(&self, kind: ClaimKind, set: impl FnOnce(&mut Settings)) -> Router {
        let store = self.store().await;
        let operation = Idempotency::new(store, settings(set)).operation("/parcels");
        let route: MethodRouter<Runs> = match kind {
            ClaimKind::Regular => post(create).layer(operation),
            ClaimKind::Pipelined => post(create).layer(operation.claim_pipelined()),
            ClaimKind::Optimistic => post(operation.transaction(create)),
        };
        router(route, &self.runs)
    }
}

/// A service with keys.
async fn service() -> Service {
    Service::new("idempotency_key").await
}

fn settings(set: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::new(system_clock(), seeded_random(1));
    settings.tenant = Some(Tenant::new("all").unwrap());
    settings.cache_bytes = 0;
    set(&mut settings);
    settings
}

fn router(route: MethodRouter<Runs>, runs: &Runs) -> Router {
    Router::new()
        .route("/parcels", route)
        .with_state(Arc::clone(runs))
        .layer(RequestIds::new(seeded_random(1)))
}

async fn create(
    mut tx: Tx<hapax_postgres::Tx>,
    State(runs): State<Runs>,
    Json(parcel): Json<Parcel>,
) -> Result<(StatusCode, String), Problem> {
    let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
    if parcel.act == "refuse at once" {
        return Err(Problem::new(problem::CONFLICT));
    }
    let inserted = tx.execute(INSERT, &[&parcel.id]).await;
    tx.emit(NewEvent::json("parcel.created", &parcel.id))?;
    if let Some(sql) = parcel.act.strip_prefix("run: ") {
        for sql in sql.split(", ") {
            tx.execute(sql, &[]).await?;
        }
        return Ok((StatusCode::CREATED, format!("run {run}")));
    }
    if let Some(sql) = parcel.act.strip_prefix("try: ") {
        assert!(tx.execute(sql, &[]).await.is_err());
        return Ok((StatusCode::CREATED, format!("run {run}")));
    }
    match parcel.act.as_str() {
        "" => inserted.map(drop)?,
        "map" => inserted.map(drop).conflict_on(ID, problem::CONFLICT)?,
        "ignore" => drop(inserted),
        "refuse" => return Err(Problem::new(problem::CONFLICT)),
        "reject" => {
            return Err(Problem::invalid("id", "is not valid").status(StatusCode::BAD_REQUEST));
        }
        "fail" => return Err(Problem::internal("asked to")),
        "panic" => panic!("asked to"),
        "hang" => std::future::pending().await,
        other => panic!("unknown act {other:?}"),
    }
    Ok((StatusCode::CREATED, format!("run {run}")))
}

/// The handler on SQLite.
async fn embedded(
    mut tx: Tx<hapax_sqlite::Tx>,
    State(runs): State<Runs>,
    Json(parcel): Json<Parcel>,
) -> Result<StatusCode, Problem> {
    runs.fetch_add(1, Ordering::SeqCst);
    tx.with(move |db| db.execute(INSERT, [parcel.id])).await?;
    if parcel.act == "reject" {
        return Err(Problem::invalid("id", "is not valid").status(StatusCode::BAD_REQUEST));
    }
    Ok(StatusCode::CREATED)
}

async fn ask(node: &Router, key: &str, id: &str, act: &str) -> Sent {
    send(node.clone(), request(key, id, act)).await
}

fn request(key: &str, id: &str, act: &str) -> Request<Body> {
    let body = serde_json::json!({ "id": id, "act": act }).to_string();
    post_json("/parcels", key, &body)
}

#[tokio::test]
async fn a_new_key_runs_once_and_every_retry_on_another_node_replays() {
    let service = service().await;
    let first = ask(&service.node(ClaimKind::Optimistic).await, "k", "a", "").await;
    check(&first, 201, Some("stored"));
    assert_eq!((service.runs(), service.stored().await), (1, [1, 1, 1]));
    // The handler fails on the row of the first execution, returns a refusal for it, or does not see
    // it.
    for kind in [
        ClaimKind::Optimistic,
        ClaimKind::Pipelined,
        ClaimKind::Regular,
    ] {
        let again = ask(&service.node(kind).await, "k", "a", "").await;
        again.check_replays(&first);
    }
    assert_eq!(service.stored().await, [1, 1, 1]);
}

#[tokio::test]
async fn whatever_the_handler_makes_of_the_first_execution_its_response_is_replayed() {
    for act in ["map", "ignore"] {
        let service = service().await;
        let first = ask(&service.node(ClaimKind::Optimistic).await, "k", "a", act).await;
        check(&first, 201, Some("stored"));
        let again = ask(&service.node(ClaimKind::Optimistic).await, "k", "a", act).await;
        again.check_replays(&first);
        assert_eq!(service.stored().await, [1, 1, 1], "{act}");
    }
}

#[tokio::test]
async fn another_payload_is_a_mismatch_and_leaves_nothing() {
    let service = service().await;
    let first = ask(&service.node(ClaimKind::Optimistic).await, "k", "a", "").await;
    check(&first, 201, Some("stored"));
    for act in ["", "refuse", "refuse at once", "reject", "fail"] {
        let other = ask(&service.node(ClaimKind::Optimistic).await, "k", "b", act).await;
        other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
    }
    assert_eq!(service.stored().await, [1, 1, 1]);
}

#[tokio::test]
async fn a_refusal_is_stored_without_its_effect_and_runs_once() {
    let service = service().await;
    for act in ["refuse", "refuse at once"] {
        let before = service.runs();
        let key = act.replace(' ', "-");
        let first = ask(&service.node(ClaimKind::Optimistic).await, &key, "a", act).await;
        check(&first, 409, Some("stored"));
        assert_eq!(service.runs(), before + 1, "{act}");
        let again = ask(&service.node(ClaimKind::Regular).await, &key, "a", act).await;
        again.check_replays(&first);
    }
    assert_eq!(service.stored().await, [0, 0, 2]);
}

/// A response that is not stored says nothing of the key, so the handler runs again under its claim.
#[tokio::test]
async fn a_response_that_is_not_stored_comes_from_a_run_that_has_claimed_the_key() {
    let service = service().await;
    let node = service.node(ClaimKind::Optimistic).await;
    for (act, status) in [("reject", 400), ("fail", 500), ("panic", 500)] {
        let before = service.runs();
        check(&ask(&node, "k", "a", act).await, status, None);
        assert_eq!(service.runs(), before + 2, "{act}");
        assert_eq!(service.stored().await, [0, 0, 0], "{act}");
    }
    check(&ask(&node, "k", "a", "").await, 201, Some("stored"));
    assert_eq!(service.stored().await, [1, 1, 1]);
}

/// The statement is refused before it is sent, so a run in vain and a retry repeat nothing.
#[tokio::test]
async fn a_handler_that_would_end_its_transaction_is_a_final_error_and_commits_nothing() {
    let service = service().await;
    for kind in [
        ClaimKind::Regular,
        ClaimKind::Pipelined,
        ClaimKind::Optimistic,
    ] {
        let node = service.node(kind).await;
        for act in [
            "run: COMMIT",
            "run: ROLLBACK",
            "try: END",
            "try: commit and chain",
        ] {
            let refused = ask(&node, "k", "a", act).await;
            refused.check_problem(500, "INTERNAL.statement");
            assert_eq!(refused.json()["retryable"], false);
            assert_eq!(refused.idempotency(), None);
            assert_eq!(service.stored().await, [0, 0, 0], "{kind:?}, {act}");
        }
    }
    let savepoints = "run: SAVEPOINT s, INSERT INTO parcel VALUES ('b'), ROLLBACK TO s, RELEASE s";
    for (number, kind) in [
        ClaimKind::Regular,
        ClaimKind::Pipelined,
        ClaimKind::Optimistic,
    ]
    .into_iter()
    .enumerate()
    {
        let id = number.to_string();
        let stored = ask(&service.node(kind).await, &id, &id, savepoints).await;
        check(&stored, 201, Some("stored"));
    }
    assert_eq!(service.stored().await, [3, 3, 3]);
}

#[test]
fn a_handler_that_would_end_its_transaction_is_logged_once_with_its_statement() {
    log::listen();
    let run = async {
        let service = service().await;
        let node = service.node(ClaimKind::Optimistic).await;
        drop(log::take());
        ask(&node, "k", "a", "run: COMMIT").await;
    };
    drop(count(run));
    let log = log::take();
    assert_eq!(log.matches("the request failed").count(), 1, "{log}");
    assert!(log.contains("COMMIT was not executed"), "{log}");
}

/// Reads the beginning of its body in its first run, and all of it in the second.
async fn weigh(
    _tx: Tx<hapax_postgres::Tx>,
    State(runs): State<Runs>,
    body: Body,
) -> Result<(StatusCode, String), Problem> {
    let mut chunks = body.into_data_stream();
    if runs.fetch_add(1, Ordering::SeqCst) == 0 {
        drop(chunks.next().await);
        return Err(Problem::invalid("body", "is not valid"));
    }
    let (mut length, mut sum) = (0, 0);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(Problem::internal)?;
        length += chunk.len();
        sum += chunk.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    Ok((StatusCode::CREATED, format!("{sum} {length}")))
}

/// A body of this length is in a file.
#[tokio::test]
async fn the_second_run_receives_the_whole_body() {
    const LENGTH: usize = 3 * 1024 * 1024 + 1;
    let service = service().await;
    let idempotency = Idempotency::new(service.store().await, settings(|_| {}));
    let operation = idempotency.operation("/parcels").body_max(LENGTH as u64);
    let node = router(post(operation.transaction(weigh)), &service.runs);
    let body: Vec<u8> = (0..LENGTH)
        .map(|number| u8::try_from(number % 251).unwrap())
        .collect();
    let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
    let request = Request::post("/parcels").header("idempotency-key", "k");
    let sent = send(node, request.body(Body::from(body)).unwrap()).await;
    check(&sent, 201, Some("stored"));
    assert_eq!(service.runs(), 2);
    assert_eq!(
        String::from_utf8_lossy(&sent.body),
        format!("{sum} {LENGTH}")
    );
}

#[tokio::test]
async fn a_failure_is_stored_where_that_is_asked() {
    let service = service().await;
    let store = |settings: &mut Settings| settings.on_failure = OnFailure::Store;
    let node = service.node_with(ClaimKind::Optimistic, store).await;
    let first = ask(&node, "k", "a", "fail").await;
    check(&first, 500, Some("stored"));
    ask(&node, "k", "a", "fail").await.check_replays(&first);
    assert_eq!(service.stored().await, [0, 0, 1]);
}

#[tokio::test]
async fn a_request_that_is_probably_a_duplicate_claims_its_key_first() {
    let service = service().await;
    let node = service.node(ClaimKind::Optimistic).await;
    let attempt = async |number: &'static str, act: &str| {
        let mut request = request("k", "a", act);
        let number = HeaderValue::from_static(number);
        request.headers_mut().insert("idempotency-attempt", number);
        send(node.clone(), request).await
    };
    check(&attempt("2", "reject").await, 400, None);
    assert_eq!(service.runs(), 1);
    check(&attempt("1", "reject").await, 400, None);
    assert_eq!(service.runs(), 3);
    let first = attempt("3", "").await;
    check(&first, 201, Some("stored"));
    attempt("4", "").await.check_replays(&first);
    assert_eq!(service.runs(), 4, "a declared retry has run");
}

/// Otherwise a duplicate could be executed and forgotten during a run.
#[tokio::test]
async fn a_key_that_may_expire_during_a_run_is_claimed_with_the_first_statement() {
    let service = service().await;
    let brief = |settings: &mut Settings| settings.retention = settings.handler_max;
    let node = service.node_with(ClaimKind::Optimistic, brief).await;
    check(&ask(&node, "k", "a", "reject").await, 400, None);
    assert_eq!(service.runs(), 1);
    check(&ask(&node, "k", "a", "").await, 201, Some("stored"));
    assert_eq!(service.runs(), 2);
}

#[tokio::test]
async fn a_service_that_fails_open_claims_before_the_handler_starts() {
    let service = service().await;
    let open = |settings: &mut Settings| settings.on_store_error = OnStoreError::Open;
    let node = service.node_with(ClaimKind::Optimistic, open).await;
    check(&ask(&node, "k", "a", "fail").await, 500, None);
    assert_eq!(service.runs(), 1);
    check(&ask(&node, "k", "a", "").await, 201, Some("stored"));
    assert_eq!(service.runs(), 2);
}

#[tokio::test]
async fn a_passed_deadline_is_a_timeout_and_stores_nothing() {
    let service = service().await;
    let node = service.node(ClaimKind::Optimistic).await;
    let mut late = request("k", "a", "hang");
    let millis = HeaderValue::from_static("300");
    late.headers_mut().insert("x-request-timeout", millis);
    let told = send(node.clone(), late).await;
    told.check_problem(504, "DEPENDENCY.timeout");
    // The key may be stored: nothing has looked for it.
    let text = String::from_utf8_lossy(&told.body);
    assert!(text.contains("before the claim"), "{text}");
    assert_eq!((service.runs(), service.stored().await), (1, [0, 0, 0]));
    check(&ask(&node, "k", "a", "").await, 201, Some("stored"));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_requests_on_four_nodes_one_has_an_effect_and_all_get_its_response() {
    for ways in [
        [ClaimKind::Optimistic; 4],
        [
            ClaimKind::Optimistic,
            ClaimKind::Regular,
            ClaimKind::Optimistic,
            ClaimKind::Pipelined,
        ],
    ] {
        let service = service().await;
        let wait = |settings: &mut Settings| settings.wait = Duration::from_secs(30);
        let mut nodes = Vec::new();
        for kind in ways {
            nodes.push(service.node_with(kind, wait).await);
        }
        let sent = (0..100).map(|number| {
            let node = nodes[number % nodes.len()].clone();
            tokio::spawn(async move {
                loop {
                    let sent = ask(&node, "k", "a", "").await;
                    // A regular claim may have waited for the key in vain. Then the client retries.
                    if sent.status != StatusCode::CONFLICT {
                        return sent;
                    }
                    sent.check_problem(409, "CONFLICT.idempotency.in_progress");
                }
            })
        });
        let sent = join_all(sent).await;
        let sent: Vec<_> = sent.into_iter().map(Result::unwrap).collect();
        for one in &sent {
            assert_eq!((one.status, &one.body), (sent[0].status, &sent[0].body));
        }
        assert_eq!(sent[0].status, StatusCode::CREATED);
        let stored = sent
            .iter()
            .filter(|one| one.idempotency() == Some("stored"));
        assert_eq!(stored.count(), 1, "{ways:?}");
        assert_eq!(service.stored().await, [1, 1, 1], "{ways:?}");
    }
}

#[test]
fn a_claim_that_loses_is_counted_and_is_no_failure() {
    log::listen();
    let counted = count(async {
        let service = service().await;
        // Opening a store may log a warning, for instance if `fsync` is off in PostgreSQL.
        let nodes = [
            service.node(ClaimKind::Optimistic).await,
            service.node(ClaimKind::Optimistic).await,
            service.node(ClaimKind::Optimistic).await,
        ];
        drop(log::take());
        ask(&nodes[0], "k", "a", "").await;
        ask(&nodes[1], "k", "a", "").await;
        ask(&nodes[2], "k", "b", "").await;
    });
    let log = log::take();
    let spans = log
        .lines()
        .filter(|line| line.contains("idempotency.outcome="));
    assert!(spans.count() >= 3, "{log}");
    for failure in ["ERROR", "WARN", "otel.status_code="] {
        assert!(!log.contains(failure), "{failure} in\n{log}");
    }
    for (reason, times) in [("taken", "1"), ("not_stored", "1"), ("conflict", "0")] {
        let line = format!(
            "hapax_idempotency_lost_claims_total{{operation=\"POST /parcels\",reason=\"{reason}\"}}"
        );
        let value = counted.get(&line).map_or("0", String::as_str);
        assert_eq!(value, times, "{line}: {counted:#?}");
    }
    for (outcome, times) in [("created", "1"), ("replayed", "1"), ("mismatch", "1")] {
        let line = format!(
            "hapax_idempotency_requests_total{{operation=\"POST /parcels\",outcome=\"{outcome}\"}}"
        );
        assert_eq!(
            counted.get(&line).map(String::as_str),
            Some(times),
            "{counted:#?}"
        );
    }
}

#[test]
fn a_handler_that_fails_under_its_claim_is_logged_once() {
    log::listen();
    let run = async {
        let service = service().await;
        let node = service.node(ClaimKind::Optimistic).await;
        drop(log::take());
        ask(&node, "k", "a", "fail").await;
        assert_eq!(service.runs(), 2);
    };
    drop(count(run));
    let log = log::take();
    assert_eq!(log.matches("the request failed").count(), 1, "{log}");
}

/// SQLite has no optimistic claims. The claim is pipelined there.
#[tokio::test]
async fn the_same_handler_runs_once_for_each_request_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let (clock, random) = (ManualClock::new().clock(), seeded_random(1));
    let settings = hapax_sqlite::Settings::new(folder.path().join("test.db"), clock, random);
    let store = Sqlite::open(settings).unwrap();
    let made = store.write(|db| db.execute(TABLE, [])).await;
    made.unwrap();
    let runs = Runs::default();
    let node = || {
        let idempotency = Idempotency::new(store.clone(), self::settings(|_| {}));
        let operation = idempotency.operation("/parcels");
        router(post(operation.transaction(embedded)), &runs)
    };
    check(&ask(&node(), "k", "a", "reject").await, 400, None);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let first = ask(&node(), "k", "a", "").await;
    check(&first, 201, Some("stored"));
    ask(&node(), "k", "a", "").await.check_replays(&first);
    let other = ask(&node(), "k", "b", "").await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
    let parcels =
        store.read(|db| db.query_row("SELECT count(*) FROM parcel", [], |row| row.get(0)));
    let parcels: i64 = parcels.await.unwrap();
    assert_eq!(parcels, 1);
}
