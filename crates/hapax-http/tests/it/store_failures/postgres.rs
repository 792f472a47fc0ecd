//! The suite on PostgreSQL, with a role that has the grants of a service.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{Router, extract::State, routing::post};
use hapax::{
    idempotency::{OnFailure, OnStoreError},
    key::Tenant,
    store::StoreError,
};
use hapax_http::{Idempotency, Problem, RequestIds, Settings};
use hapax_postgres::{Postgres, Schema, Statement, Tx};
use hapax_testkit::{
    clock::{ManualClock, seeded_random},
    postgres::Cluster,
};
use http::StatusCode;

use super::{
    Fault, Fixture, Runs, check, check_kept_mistake, check_mistake, check_outside,
    check_unavailable, node_with,
};
use crate::stage::{post_json, send};

const INSERT: &str = "INSERT INTO effect VALUES (1)";
const GRANTS: &str = "CREATE ROLE shop LOGIN;
    GRANT USAGE ON SCHEMA hapax, public TO shop;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hapax, public TO shop;
    GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA hapax, public TO shop;
    CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = TG_ARGV[0]; END $$";

/// A fault that lets a claim succeed or fails everything.
const fn of_all(name: &'static str, breaks: &'static str, repairs: &'static str) -> Fault {
    Fault {
        name,
        breaks,
        repairs,
        only_claims_fail: false,
    }
}

/// A fault of claims, while the tables of the service can be written.
const fn of_claims(name: &'static str, breaks: &'static str, repairs: &'static str) -> Fault {
    Fault {
        only_claims_fail: true,
        ..of_all(name, breaks, repairs)
    }
}

const UNFAULT_KEYS: &str = "DROP TRIGGER fault ON hapax.idempotency_key";
const UNFAULT_ROWS: &str = "DROP TRIGGER fault ON effect";
const FAULTS: [Fault; 10] = [
    of_claims(
        "missing-table",
        "ALTER TABLE hapax.idempotency_key RENAME TO gone",
        "ALTER TABLE hapax.gone RENAME TO idempotency_key",
    ),
    of_claims(
        "no-privilege",
        "REVOKE ALL ON hapax.idempotency_key FROM shop",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.idempotency_key TO shop",
    ),
    of_all(
        "no-privilege-to-write",
        "REVOKE INSERT, UPDATE ON hapax.idempotency_key FROM shop",
        "GRANT INSERT, UPDATE ON hapax.idempotency_key TO shop",
    ),
    of_all(
        "disk-full-for-keys",
        "CREATE TRIGGER fault BEFORE INSERT ON hapax.idempotency_key
            FOR EACH ROW EXECUTE FUNCTION fault('53100')",
        UNFAULT_KEYS,
    ),
    of_all(
        "out-of-memory-for-keys",
        "CREATE TRIGGER fault BEFORE INSERT ON hapax.idempotency_key
            FOR EACH ROW EXECUTE FUNCTION fault('53200')",
        UNFAULT_KEYS,
    ),
    of_all(
        "disk-full-for-rows",
        "CREATE TRIGGER fault BEFORE INSERT ON effect
            FOR EACH ROW EXECUTE FUNCTION fault('53100')",
        UNFAULT_ROWS,
    ),
    of_all(
        "input-and-output-for-rows",
        "CREATE TRIGGER fault BEFORE INSERT ON effect
            FOR EACH ROW EXECUTE FUNCTION fault('58030')",
        UNFAULT_ROWS,
    ),
    of_all(
        "damaged-rows",
        "CREATE TRIGGER fault BEFORE INSERT ON effect
            FOR EACH ROW EXECUTE FUNCTION fault('XX001')",
        UNFAULT_ROWS,
    ),
    of_all(
        "read-only",
        "ALTER ROLE shop SET default_transaction_read_only = on",
        "ALTER ROLE shop RESET default_transaction_read_only",
    ),
    of_all(
        "too-many-connections",
        "ALTER ROLE shop CONNECTION LIMIT 0",
        "ALTER ROLE shop CONNECTION LIMIT -1",
    ),
];

struct Server(Cluster);

impl Server {
    async fn fresh() -> Self {
        let server = Self(Cluster::start().await);
        let owner = server.open("postgres", Schema::Apply).await;
        let table = "CREATE TABLE effect (number int NOT NULL)";
        let made = owner.migrate("test", &[(1, "effect", table)]).await;
        made.unwrap();
        owner.close();
        server.run(GRANTS).await;
        server
    }

    async fn open(&self, role: &str, schema: Schema) -> Postgres {
        let url = format!("postgres://{role}@{}/postgres", self.0.address());
        let (clock, random) = (ManualClock::new().clock(), seeded_random(1));
        let mut settings = hapax_postgres::Settings::new(url, clock, random);
        settings.schema = schema;
        Postgres::open(settings).await.unwrap()
    }
}

impl Fixture for Server {
    type Store = Postgres;

    async fn store(&self) -> Postgres {
        self.open("shop", Schema::Check).await
    }

    async fn run(&self, sql: &'static str) {
        self.0.client().await.batch_execute(sql).await.unwrap();
        if sql.starts_with("ALTER ROLE") {
            // It holds for new connections.
            self.0.terminate_backends("hapax").await;
        }
    }

    async fn effects(&self) -> usize {
        let client = self.0.client().await;
        let count = "SELECT count(*) FROM effect";
        let counted: i64 = client.query_one(count, &[]).await.unwrap().get(0);
        usize::try_from(counted).unwrap()
    }

    async fn insert(tx: &mut Tx) -> Result<(), StoreError> {
        tx.execute(INSERT, &[]).await.map(drop)
    }

    async fn fail(tx: &mut Tx) -> Result<(), StoreError> {
        tx.execute("INSERT INTO nowhere VALUES (1)", &[])
            .await
            .map(drop)
    }

    fn statement() -> Statement {
        Statement::new(INSERT, Vec::new())
    }

    fn refused() -> Statement {
        Statement::new("INSERT INTO effect VALUES (NULL)", Vec::new())
    }
}

#[test]
fn a_store_that_cannot_be_used_is_503_or_fails_open() {
    check(Server::fresh(), &FAULTS);
}

#[test]
fn a_statement_that_the_database_refuses_is_no_failure_of_the_store() {
    check_mistake(Server::fresh());
}

#[test]
fn a_handler_that_cannot_store_a_file_has_a_failure_of_the_store() {
    check_outside(Server::fresh());
}

#[tokio::test]
async fn a_plan_that_the_database_refuses_is_kept_where_the_service_says_so() {
    check_kept_mistake(&Server::fresh().await).await;
}

/// The statement waits behind a lock. A failure that is stored is stored in spite of that.
#[tokio::test]
async fn a_plan_that_waits_for_a_lock_is_504_in_the_clients_time() {
    let server = Server::fresh().await;
    let blocker = server.0.client().await;
    for (on_failure, first, second) in [
        (OnFailure::Release, None, None),
        (OnFailure::Store, Some("stored"), Some("replayed")),
    ] {
        let (node, _) = node_with(&server, |settings| settings.on_failure = on_failure).await;
        let lock = "BEGIN; LOCK TABLE effect IN ACCESS EXCLUSIVE MODE";
        blocker.batch_execute(lock).await.unwrap();
        for status in [first, second] {
            let mut request = post_json("/planned", "k", "{}");
            let time = "500".parse().unwrap();
            request.headers_mut().insert("x-request-timeout", time);
            let sent = send(node.clone(), request);
            let sent = tokio::time::timeout(Duration::from_secs(10), sent).await;
            let sent = sent.expect("the deadline was ignored");
            sent.check_problem(504, "DEPENDENCY.timeout");
            assert_eq!(sent.idempotency(), status, "{on_failure:?}");
            assert_eq!(sent.header("idempotency-key"), Some("k"));
            assert_eq!(sent.header("retry-after"), None);
        }
        blocker.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(server.effects().await, 0, "{on_failure:?}");
    }
    let (node, _) = node_with(&server, |_| {}).await;
    let retry = send(node, post_json("/planned", "l", "{}")).await;
    assert_eq!(retry.idempotency(), Some("stored"));
}

/// The server ends the connection in the middle of a request (SQLSTATE 57P01).
#[tokio::test]
async fn a_connection_that_the_server_ends_is_503_and_its_handler_does_not_run_again() {
    let server = Server::fresh().await;
    let random = seeded_random(1);
    for on_store_error in [OnStoreError::Closed, OnStoreError::Open] {
        let mut settings = Settings::new(ManualClock::new().clock(), random.clone());
        settings.tenant = Tenant::new("all").ok();
        settings.on_store_error = on_store_error;
        let idempotency = Idempotency::new(server.store().await, settings);
        let end = async |mut tx: hapax_http::Tx<Tx>| {
            tx.execute(INSERT, &[]).await?;
            let end = "SELECT pg_terminate_backend(pg_backend_pid())";
            tx.query(end, &[]).await?;
            Ok::<_, Problem>(StatusCode::CREATED)
        };
        let layer = idempotency.operation("/ended");
        let node = Router::new()
            .route("/ended", post(end).layer(layer))
            .layer(RequestIds::new(random.clone()));
        let sent = send(node, post_json("/ended", "k", "{}")).await;
        check_unavailable(&sent, "/ended", "its connection is ended");
        assert_eq!(server.effects().await, 0);
    }
}

/// The run has to be repeated because of a conflict, and from then on keys cannot be claimed. The
/// conflict may be a key that another request has taken.
#[tokio::test]
async fn a_handler_that_has_started_does_not_run_again_without_its_key() {
    let (server, runs) = (Arc::new(Server::fresh().await), Runs::default());
    let random = seeded_random(1);
    let mut settings = Settings::new(ManualClock::new().clock(), random.clone());
    settings.tenant = Tenant::new("all").ok();
    settings.on_store_error = OnStoreError::Open;
    let idempotency = Idempotency::new(server.store().await, settings);
    let layer = idempotency.operation("/conflict");
    let node = Router::new()
        .route("/conflict", post(conflict).layer(layer))
        .with_state((Arc::clone(&server), Arc::clone(&runs)))
        .layer(RequestIds::new(random));
    let sent = send(node, post_json("/conflict", "k", "{}")).await;
    check_unavailable(&sent, "/conflict", "no key can be claimed");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(server.effects().await, 0);
}

async fn conflict(
    State((server, runs)): State<(Arc<Server>, Runs)>,
    mut tx: hapax_http::Tx<Tx>,
) -> Result<StatusCode, Problem> {
    if runs.fetch_add(1, Ordering::SeqCst) > 0 {
        return Ok(StatusCode::CREATED);
    }
    tx.execute(INSERT, &[]).await?;
    server
        .run("REVOKE ALL ON hapax.idempotency_key FROM shop")
        .await;
    let source = "with another transaction".into();
    Err(StoreError::Conflict { source }.into())
}
