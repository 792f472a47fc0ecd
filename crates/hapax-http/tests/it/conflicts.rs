//! Tests of deadlocks between handlers: one transaction fails, its request runs again, and each
//! request receives one response.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    Router,
    extract::State,
    routing::{MethodRouter, post},
};
use futures_util::future::join;
use hapax::event::NewEvent;
use hapax_http::{Idempotency, Json, OperationLayer, Problem, RequestIds, Settings, Tx};
use hapax_postgres::Postgres;
use hapax_testkit::{
    clock::{seeded_random, system_clock},
    postgres::Database,
};
use http::StatusCode;
use serde::Deserialize;
use tokio::sync::Barrier;

use crate::stage::{Sent, post_json, send};

const TABLES: &str = "CREATE TABLE note (text text NOT NULL);
    CREATE TABLE stock (id int PRIMARY KEY, left_over int NOT NULL);
    INSERT INTO stock VALUES (1, 10), (2, 10)";
const TAKE: &str = "UPDATE stock SET left_over = left_over - 1 WHERE id = $1";

/// The rows that a request takes, in order.
#[derive(Deserialize)]
struct Take {
    rows: [i32; 2],
    /// Whether the handler ignores the error of its second statement.
    #[serde(default)]
    swallows: bool,
}

#[derive(Clone)]
struct Crossing {
    runs: Arc<AtomicUsize>,
    /// Both requests lock their first row before either requests its second.
    both: Arc<Barrier>,
}

async fn take(
    mut tx: Tx<hapax_postgres::Tx>,
    State(crossing): State<Crossing>,
    Json(order): Json<Take>,
) -> Result<(StatusCode, String), Problem> {
    let run = crossing.runs.fetch_add(1, Ordering::SeqCst);
    let [first, second] = order.rows;
    tx.execute("INSERT INTO note VALUES ('taken')", &[]).await?;
    tx.emit(NewEvent::json("stock.taken", &order.rows))?;
    tx.execute(TAKE, &[&first]).await?;
    if run < 2 {
        crossing.both.wait().await;
    }
    let taken = tx.execute(TAKE, &[&second]).await;
    if !order.swallows {
        taken?;
    }
    Ok((StatusCode::CREATED, format!("first {first}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_deadlocks_runs_again_and_is_answered_once_with_one_effect() {
    check(false, |layer| post(take).layer(layer)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_swallows_its_deadlock_runs_again_all_the_same() {
    check(true, |layer| post(take).layer(layer)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_deadlocks_behind_its_riding_claim_runs_again() {
    check(false, |layer| post(take).layer(layer.claim_pipelined())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_deadlocks_before_its_optimistic_claim_runs_again() {
    for swallows in [false, true] {
        check(swallows, |layer| post(layer.transaction(take))).await;
    }
}

async fn check(
    swallows: bool,
    route: impl FnOnce(OperationLayer<Postgres>) -> MethodRouter<Crossing>,
) {
    let database = Database::fresh().await;
    let (clock, random) = (system_clock(), seeded_random(1));
    let settings = hapax_postgres::Settings::new(database.url(), clock.clone(), random.clone());
    let store = Postgres::open(settings).await.unwrap();
    let made = store.migrate("test", &[(1, "tables", TABLES)]).await;
    made.unwrap();
    let mut settings = Settings::new(clock, random.clone());
    settings.tenant = Some(hapax::key::Tenant::new("all").unwrap());
    let idempotency = Idempotency::new(store, settings);
    let crossing = Crossing {
        runs: Arc::default(),
        both: Arc::new(Barrier::new(2)),
    };
    let router = Router::new()
        .route("/take", route(idempotency.operation("/take")))
        .with_state(crossing.clone())
        .layer(RequestIds::new(random));
    let ask = async |key: &str, rows: [i32; 2]| -> Sent {
        let body = serde_json::json!({ "rows": rows, "swallows": swallows }).to_string();
        send(router.clone(), post_json("/take", key, &body)).await
    };
    let (up, down) = join(ask("up", [1, 2]), ask("down", [2, 1])).await;
    for (sent, body) in [(&up, "first 1"), (&down, "first 2")] {
        let text = String::from_utf8_lossy(&sent.body);
        assert_eq!((sent.status, &*text), (StatusCode::CREATED, body));
    }
    // One of them failed. It may lock its first row again before the other one, which waits for
    // that row, gets the lock. Then there is another deadlock.
    let runs = crossing.runs.load(Ordering::SeqCst);
    assert!(runs >= 3, "no conflict: {runs} runs");
    ask("up", [1, 2]).await.check_replays(&up);
    ask("down", [2, 1]).await.check_replays(&down);
    assert_eq!(crossing.runs.load(Ordering::SeqCst), runs);
    let effects = "SELECT (SELECT count(*) FROM note), (SELECT count(*) FROM hapax.outbox_event),
        (SELECT sum(left_over) FROM stock)";
    let row = database.client().await.query_one(effects, &[]).await;
    let row = row.unwrap();
    let effects: [i64; 3] = [row.get(0), row.get(1), row.get(2)];
    assert_eq!(effects, [2, 2, 16]);
}
