//! Tests of handlers that use sqlx: the same contract as with the store's own transaction.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::State, routing::post};
use futures_util::future::join;
use hapax::{event::NewEvent, key::Tenant};
use hapax_http::{Idempotency, Json, Problem, RequestIds, Settings, Tx, problem};
use hapax_postgres::{
    Postgres,
    adapter::sqlx::{SqlxStore, SqlxTx, store_error},
};
use hapax_testkit::{
    clock::{seeded_random, system_clock},
    postgres::Database,
    wait::eventually,
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use sqlx::{Executor as _, PgPool};
use tokio::sync::{Barrier, Semaphore};

use crate::{
    log,
    metrics::count,
    stage::{Sent, post_json, send},
};

const PATIENCE: Duration = Duration::from_secs(30);
const TABLES: &str = "CREATE TABLE note (text text NOT NULL);
    CREATE TABLE stock (id int PRIMARY KEY, left_over int NOT NULL);
    INSERT INTO stock VALUES (1, 10), (2, 10)";

/// How a handler ends after it has written a note.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
enum Act {
    Succeed,
    Refuse,
    Fail,
    Panic,
    /// Ignores the error of a statement, emits no event, and responds with success.
    Swallow,
    /// Waits at the gate.
    Wait,
    /// Locks two rows in this order. The first two runs meet after their first row.
    Take([i32; 2]),
    /// Ends its transaction with these statements, and responds with success.
    End(End),
    /// Ends its transaction, and refuses.
    EndAndRefuse,
    /// Begins a savepoint, and rolls back to it.
    Savepoint,
}

/// Statements that end a transaction.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
enum End {
    Commit,
    CommitAndChain,
    Rollback,
    RollbackAndBegin,
}

impl End {
    fn sql(self) -> &'static str {
        match self {
            Self::Commit => "COMMIT",
            Self::CommitAndChain => "COMMIT AND CHAIN",
            Self::Rollback => "ROLLBACK",
            Self::RollbackAndBegin => "ROLLBACK; BEGIN",
        }
    }
}

#[derive(Clone)]
struct Props {
    runs: Arc<AtomicUsize>,
    entered: Arc<Semaphore>,
    gate: Arc<Semaphore>,
    both: Arc<Barrier>,
}

async fn note(
    State(props): State<Props>,
    mut tx: Tx<SqlxTx>,
    Json(act): Json<Act>,
) -> Result<(StatusCode, String), Problem> {
    let run = props.runs.fetch_add(1, Ordering::SeqCst);
    let text = format!("{act:?}");
    write(&mut tx, &text).await.map_err(store_error)?;
    if act != Act::Swallow {
        tx.emit(NewEvent::json("note.created", &text))?;
    }
    props.entered.add_permits(1);
    match act {
        Act::Succeed => {}
        Act::Refuse => return Err(Problem::new(problem::CONFLICT)),
        Act::Fail => return Err(Problem::internal("asked to")),
        Act::Panic => panic!("asked to"),
        Act::Swallow => {
            let refused = sqlx::query("SELECT 1 / 0").execute(&mut **tx).await;
            assert!(refused.is_err());
        }
        Act::Wait => props.gate.acquire().await.unwrap().forget(),
        Act::Take([first, second]) => {
            take(&mut tx, first).await.map_err(store_error)?;
            if run < 2 {
                props.both.wait().await;
            }
            take(&mut tx, second).await.map_err(store_error)?;
        }
        Act::End(end) => execute(&mut tx, end.sql()).await.map_err(store_error)?,
        Act::EndAndRefuse => {
            execute(&mut tx, "COMMIT").await.map_err(store_error)?;
            return Err(Problem::new(problem::CONFLICT));
        }
        Act::Savepoint => {
            let sql = "SAVEPOINT s; INSERT INTO note VALUES ('undone'); ROLLBACK TO s";
            execute(&mut tx, sql).await.map_err(store_error)?;
        }
    }
    Ok((StatusCode::CREATED, text))
}

/// A function of the service that knows nothing of Hapax.
async fn write(tx: &mut sqlx::PgConnection, text: &str) -> Result<(), sqlx::Error> {
    let insert = sqlx::query("INSERT INTO note VALUES ($1)").bind(text);
    insert.execute(tx).await.map(drop)
}

async fn execute(tx: &mut sqlx::PgConnection, sql: &'static str) -> Result<(), sqlx::Error> {
    tx.execute(sql).await.map(drop)
}

async fn take(tx: &mut sqlx::PgConnection, row: i32) -> Result<(), sqlx::Error> {
    let take = sqlx::query("UPDATE stock SET left_over = left_over - 1 WHERE id = $1").bind(row);
    take.execute(tx).await.map(drop)
}

/// A database, and the state of the handlers of its nodes.
struct Stage {
    database: Database,
    props: Props,
}

impl Stage {
    async fn new() -> Self {
        Self {
            database: Database::fresh().await,
            props: Props {
                runs: Arc::default(),
                entered: Arc::new(Semaphore::new(0)),
                gate: Arc::new(Semaphore::new(0)),
                both: Arc::new(Barrier::new(2)),
            },
        }
    }

    /// A node of the service: a store, a pool and a layer.
    async fn node(&self) -> Router {
        let url = self.database.url();
        let (clock, random) = (system_clock(), seeded_random(1));
        let mut settings = hapax_postgres::Settings::new(&url, clock.clone(), random.clone());
        settings.wait = Duration::from_millis(50);
        let postgres = Postgres::open(settings).await.unwrap();
        let made = postgres.migrate("test", &[(1, "tables", TABLES)]).await;
        made.unwrap();
        let pool = PgPool::connect(&url).await.unwrap();
        let store = SqlxStore::new(postgres, pool);
        let mut settings = Settings::new(clock, random.clone());
        settings.tenant = Some(Tenant::new("all").unwrap());
        let idempotency = Idempotency::new(store, settings);
        let layer = idempotency.operation("/notes").optional();
        Router::new()
            .route("/notes", post(note).layer(layer))
            .with_state(self.props.clone())
            .layer(RequestIds::new(random))
    }

    fn runs(&self) -> usize {
        self.props.runs.load(Ordering::SeqCst)
    }

    async fn entered(&self) {
        self.props.entered.acquire().await.unwrap().forget();
    }

    /// The committed notes, events and keys.
    async fn effects(&self) -> [i64; 3] {
        const EFFECTS: &str = "SELECT (SELECT count(*) FROM note),
            (SELECT count(*) FROM hapax.outbox_event),
            (SELECT count(*) FROM hapax.idempotency_key)";
        let client = self.database.client().await;
        let row = client.query_one(EFFECTS, &[]).await.unwrap();
        [row.get(0), row.get(1), row.get(2)]
    }
}

async fn ask(node: &Router, key: &str, act: Act) -> Sent {
    let body = serde_json::to_string(&act).unwrap();
    send(node.clone(), post_json("/notes", key, &body)).await
}

#[tokio::test]
async fn a_retry_replays_at_every_node_and_another_payload_is_a_mismatch() {
    let stage = Stage::new().await;
    let (one, two) = (stage.node().await, stage.node().await);
    let first = ask(&one, "k", Act::Succeed).await;
    assert_eq!(
        (first.status, first.idempotency()),
        (StatusCode::CREATED, Some("stored"))
    );
    ask(&one, "k", Act::Succeed).await.check_replays(&first);
    ask(&two, "k", Act::Succeed).await.check_replays(&first);
    let other = ask(&two, "k", Act::Wait).await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
    assert_eq!((stage.runs(), stage.effects().await), (1, [1, 1, 1]));
}

#[tokio::test]
async fn a_key_table_that_cannot_be_used_is_503_at_the_claim_and_at_the_commit() {
    let stage = Stage::new().await;
    let node = stage.node().await;
    let client = stage.database.client().await;
    let change = async |sql: &str| client.batch_execute(sql).await.unwrap();
    change("ALTER TABLE hapax.idempotency_key RENAME TO gone").await;
    let refused = ask(&node, "k", Act::Succeed).await;
    refused.check_problem(503, "DEPENDENCY.unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(stage.runs(), 0);
    change("ALTER TABLE hapax.gone RENAME TO idempotency_key").await;
    change(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION 'no'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON hapax.idempotency_key
            FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    .await;
    let refused = ask(&node, "k", Act::Succeed).await;
    refused.check_problem(503, "DEPENDENCY.unavailable");
    assert_eq!((stage.runs(), stage.effects().await), (1, [0, 0, 0]));
    change("DROP TRIGGER refuse ON hapax.idempotency_key").await;
    let stored = ask(&node, "k", Act::Succeed).await;
    assert_eq!(stored.idempotency(), Some("stored"));
    assert_eq!(stage.effects().await, [1, 1, 1]);
}

#[tokio::test]
async fn a_duplicate_at_another_node_is_in_progress_until_the_first_has_ended() {
    let stage = Stage::new().await;
    let (one, two) = (stage.node().await, stage.node().await);
    let node = one.clone();
    let first = tokio::spawn(async move { ask(&node, "k", Act::Wait).await });
    stage.entered().await;
    let second = ask(&two, "k", Act::Wait).await;
    second.check_problem(409, "CONFLICT.idempotency.in_progress");
    stage.props.gate.add_permits(1);
    let first = first.await.unwrap();
    ask(&two, "k", Act::Wait).await.check_replays(&first);
    assert_eq!((stage.runs(), stage.effects().await), (1, [1, 1, 1]));
}

#[tokio::test]
async fn a_handler_that_fails_or_panics_leaves_nothing_and_its_key_is_free() {
    let stage = Stage::new().await;
    let node = stage.node().await;
    for act in [Act::Fail, Act::Panic, Act::Swallow] {
        let failed = ask(&node, "k", act).await;
        assert_eq!(failed.status, StatusCode::INTERNAL_SERVER_ERROR, "{act:?}");
        assert_eq!(stage.effects().await, [0, 0, 0], "{act:?}");
    }
    let retried = ask(&node, "k", Act::Succeed).await;
    assert_eq!(retried.status, StatusCode::CREATED);
    assert_eq!((stage.runs(), stage.effects().await), (4, [1, 1, 1]));
}

#[tokio::test]
async fn a_refusal_is_stored_without_its_effect() {
    let stage = Stage::new().await;
    let node = stage.node().await;
    let refused = ask(&node, "k", Act::Refuse).await;
    refused.check_problem(409, "CONFLICT.state");
    ask(&node, "k", Act::Refuse).await.check_replays(&refused);
    assert_eq!((stage.runs(), stage.effects().await), (1, [0, 0, 1]));
}

#[tokio::test]
async fn a_handler_that_has_ended_its_transaction_is_a_final_error_and_has_no_stored_response() {
    let stage = Stage::new().await;
    let node = stage.node().await;
    let mut notes = 0;
    for (act, kept) in [
        (Act::End(End::Commit), 1),
        (Act::End(End::CommitAndChain), 1),
        (Act::End(End::Rollback), 0),
        (Act::End(End::RollbackAndBegin), 0),
        (Act::EndAndRefuse, 1),
    ] {
        let ended = ask(&node, "k", act).await;
        ended.check_problem(500, "INTERNAL");
        assert_eq!(ended.json()["retryable"], false, "{act:?}");
        assert_eq!(ended.idempotency(), None, "{act:?}");
        // What the handler has committed cannot be undone, which is why no retry is asked for.
        notes += kept;
        assert_eq!(stage.effects().await, [notes, 0, 0], "{act:?}");
    }
    let ended = ask(&node, "", Act::End(End::Commit)).await;
    ended.check_problem(500, "INTERNAL");
    assert_eq!(stage.effects().await, [notes + 1, 0, 0]);
    let stored = ask(&node, "k", Act::Savepoint).await;
    assert_eq!(stored.idempotency(), Some("stored"));
    assert_eq!(stage.effects().await, [notes + 2, 1, 1]);
}

#[test]
fn a_handler_that_has_ended_its_transaction_is_logged_once() {
    log::listen();
    let run = async {
        let stage = Stage::new().await;
        let node = stage.node().await;
        drop(log::take());
        ask(&node, "k", Act::End(End::Commit)).await;
    };
    drop(count(run));
    let log = log::take();
    assert_eq!(log.matches("the request failed").count(), 1, "{log}");
    let what = "a statement of the handler has ended the transaction";
    assert!(log.contains(what), "{log}");
}

#[tokio::test]
async fn a_request_whose_client_disconnects_commits_and_is_replayed() {
    let stage = Stage::new().await;
    let node = stage.node().await;
    let asking = node.clone();
    let first = tokio::spawn(async move { ask(&asking, "k", Act::Wait).await });
    stage.entered().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    stage.props.gate.add_permits(1);
    eventually(PATIENCE, async || stage.effects().await == [1, 1, 1]).await;
    let retried = ask(&node, "k", Act::Wait).await;
    assert_eq!(
        (retried.status, retried.idempotency()),
        (StatusCode::CREATED, Some("replayed"))
    );
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn a_request_without_a_key_commits_all_or_nothing_and_stores_no_response() {
    let stage = Stage::new().await;
    let node = stage.node().await;
    for act in [Act::Fail, Act::Swallow] {
        let failed = ask(&node, "", act).await;
        assert_eq!(failed.status, StatusCode::INTERNAL_SERVER_ERROR, "{act:?}");
        assert_eq!(stage.effects().await, [0, 0, 0], "{act:?}");
    }
    let sent = ask(&node, "", Act::Succeed).await;
    assert_eq!(sent.status, StatusCode::CREATED);
    assert_eq!(stage.effects().await, [1, 1, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_returns_its_deadlock_runs_again_with_one_effect() {
    let stage = Stage::new().await;
    let node = stage.node().await;
    let (up, down) = join(
        ask(&node, "up", Act::Take([1, 2])),
        ask(&node, "down", Act::Take([2, 1])),
    )
    .await;
    for sent in [&up, &down] {
        let text = String::from_utf8_lossy(&sent.body);
        assert_eq!(sent.status, StatusCode::CREATED, "{text}");
    }
    assert!(stage.runs() >= 3, "no conflict: {} runs", stage.runs());
    assert_eq!(stage.effects().await, [2, 2, 2]);
    let client = stage.database.client().await;
    let left = client.query_one("SELECT sum(left_over) FROM stock", &[]);
    assert_eq!(left.await.unwrap().get::<_, i64>(0), 16);
}
