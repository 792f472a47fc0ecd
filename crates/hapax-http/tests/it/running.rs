//! Another payload under a key whose first request is running: a mismatch at once, on every node.
//!
//! The nodes wait for a minute for a key that is in progress, so a request that waited would not be a
//! mismatch in time.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    routing::{MethodRouter, post},
};
use hapax::{key::Tenant, store::Keys};
use hapax_http::{Idempotency, Json, OperationLayer, Problem, RequestIds, Settings, Tx};
use hapax_postgres::Postgres;
use hapax_sqlite::Sqlite;
use hapax_testkit::{
    clock::{ManualClock, seeded_random, system_clock},
    postgres::Database,
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::{sync::Semaphore, task::JoinHandle};

use crate::stage::{Sent, post_json, send};

const TABLE: &str = "CREATE TABLE parcel (id text PRIMARY KEY)";
const INSERT: &str = "INSERT INTO parcel VALUES ($1)";

/// A parcel, and what the handler does after it has inserted it.
#[derive(Clone, Copy, Deserialize, Serialize)]
enum Act {
    Return,
    /// Waits at the gate.
    Wait,
    /// Waits at the gate and fails.
    WaitAndFail,
}

#[derive(Deserialize, Serialize)]
struct Parcel {
    id: String,
    act: Act,
}

/// Where handlers wait.
#[derive(Clone)]
struct Gate {
    entered: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    fn new() -> Self {
        Self {
            entered: Arc::new(Semaphore::new(0)),
            open: Arc::new(Semaphore::new(0)),
        }
    }

    /// The end of a handler.
    async fn pass(&self, act: Act) -> Result<StatusCode, Problem> {
        if let Act::Return = act {
            return Ok(StatusCode::CREATED);
        }
        self.entered.add_permits(1);
        self.open.acquire().await.unwrap().forget();
        match act {
            Act::WaitAndFail => Err(Problem::internal("asked to")),
            Act::Return | Act::Wait => Ok(StatusCode::CREATED),
        }
    }

    /// Waits until a handler is at the gate.
    async fn entered(&self) {
        self.entered.acquire().await.unwrap().forget();
    }
}

async fn create(
    mut tx: Tx<hapax_postgres::Tx>,
    State(gate): State<Gate>,
    Json(parcel): Json<Parcel>,
) -> Result<StatusCode, Problem> {
    tx.execute(INSERT, &[&parcel.id]).await?;
    gate.pass(parcel.act).await
}

/// The handler on SQLite.
async fn embedded(
    mut tx: Tx<hapax_sqlite::Tx>,
    State(gate): State<Gate>,
    Json(parcel): Json<Parcel>,
) -> Result<StatusCode, Problem> {
    let id = parcel.id;
    tx.with(move |db| db.execute(INSERT, [id])).await?;
    gate.pass(parcel.act).await
}

/// The operation of a node that has no response in memory.
fn operation<K: Keys>(store: K) -> OperationLayer<K> {
    let mut settings = Settings::new(system_clock(), seeded_random(1));
    settings.tenant = Some(Tenant::new("all").unwrap());
    settings.cache_bytes = 0;
    settings.wait = Duration::from_mins(1);
    Idempotency::new(store, settings).operation("/parcels")
}

async fn store(database: &Database) -> Postgres {
    let (clock, random) = (system_clock(), seeded_random(1));
    let settings = hapax_postgres::Settings::new(database.url(), clock, random);
    let store = Postgres::open(settings).await.unwrap();
    store
        .migrate("test", &[(1, "parcel", TABLE)])
        .await
        .unwrap();
    store
}

fn spawn(node: &Router, key: &str, id: &str, act: Act) -> JoinHandle<Sent> {
    let (node, key, id) = (node.clone(), key.to_owned(), id.to_owned());
    tokio::spawn(async move { ask(&node, &key, &id, act).await })
}

async fn ask(node: &Router, key: &str, id: &str, act: Act) -> Sent {
    let parcel = Parcel {
        id: id.to_owned(),
        act,
    };
    let body = serde_json::to_string(&parcel).unwrap();
    send(node.clone(), post_json("/parcels", key, &body)).await
}

/// The first request runs on the first of `nodes`. Another payload is sent to each of them.
async fn check_conflicts(nodes: &[Router], gate: &Gate) {
    let first = spawn(&nodes[0], "k", "first", Act::Wait);
    gate.entered().await;
    for node in nodes {
        let other = ask(node, "k", "other", Act::Return).await;
        other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
        assert_eq!(other.header("retry-after"), None);
    }
    gate.open.add_permits(1);
    assert_eq!(first.await.unwrap().idempotency(), Some("stored"));
    // The key of a request that fails is free, for every payload.
    let failing = spawn(&nodes[0], "failing", "failing", Act::WaitAndFail);
    gate.entered().await;
    for node in nodes {
        let other = ask(node, "failing", "other", Act::Return).await;
        other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
    }
    gate.open.add_permits(1);
    let failed = failing.await.unwrap();
    assert_eq!(failed.status, StatusCode::INTERNAL_SERVER_ERROR);
    let other = ask(&nodes[nodes.len() - 1], "failing", "other", Act::Return).await;
    assert_eq!(other.idempotency(), Some("stored"));
}

fn node(route: MethodRouter<Gate>, gate: &Gate) -> Router {
    Router::new()
        .route("/parcels", route)
        .with_state(gate.clone())
        .layer(RequestIds::new(seeded_random(1)))
}

#[tokio::test]
async fn another_payload_is_a_mismatch_on_every_node_while_the_first_request_runs() {
    let (database, gate) = (Database::fresh().await, Gate::new());
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let layer = operation(store(&database).await);
        nodes.push(node(post(create).layer(layer), &gate));
    }
    check_conflicts(&nodes, &gate).await;
}

#[tokio::test]
async fn so_it_is_after_the_first_statement_of_a_pipelined_claim() {
    let (database, gate) = (Database::fresh().await, Gate::new());
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let layer = operation(store(&database).await).claim_pipelined();
        nodes.push(node(post(create).layer(layer), &gate));
    }
    check_conflicts(&nodes, &gate).await;
}

#[tokio::test]
async fn so_it_is_on_sqlite_with_either_kind_of_claim() {
    for is_pipelined in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db");
        let (clock, random) = (ManualClock::new().clock(), seeded_random(1));
        let settings = hapax_sqlite::Settings::new(path, clock, random);
        let store = Sqlite::open(settings).unwrap();
        let table = store.write(|db| db.execute(TABLE, []));
        table.await.unwrap();
        let gate = Gate::new();
        let layer = operation(store);
        let route: MethodRouter<Gate> = if is_pipelined {
            post(layer.transaction(embedded))
        } else {
            post(embedded).layer(layer)
        };
        check_conflicts(&[node(route, &gate)], &gate).await;
    }
}

/// An optimistic claim is decided by its commit, so the first request is the one that commits first.
#[tokio::test]
async fn of_two_payloads_with_optimistic_claims_the_later_commit_is_the_mismatch() {
    let (database, gate) = (Database::fresh().await, Gate::new());
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let layer = operation(store(&database).await);
        nodes.push(node(post(layer.transaction(create)), &gate));
    }
    let slow = spawn(&nodes[0], "k", "slow", Act::Wait);
    gate.entered().await;
    let fast = ask(&nodes[1], "k", "fast", Act::Return).await;
    assert_eq!(fast.idempotency(), Some("stored"));
    gate.open.add_permits(1);
    let slow = slow.await.unwrap();
    slow.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
}
