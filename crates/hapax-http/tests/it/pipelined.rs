//! Pipelined claims: a key that is taken is not logged, traced or counted as a failure.

use std::collections::BTreeMap;

use axum::{
    Router,
    response::{IntoResponse, Response},
    routing::{MethodRouter, post},
};
use hapax::{
    key::Tenant,
    store::{Keys, StoreError},
};
use hapax_http::{Idempotency, Json, Problem, RequestIds, Settings, Tx};
use hapax_postgres::Postgres;
use hapax_sqlite::Sqlite;
use hapax_testkit::{
    clock::{ManualClock, seeded_random},
    postgres::Database,
};
use http::StatusCode;

use crate::{
    log,
    metrics::count,
    stage::{post_json, send},
};

const TABLE: &str = "CREATE TABLE note (number BIGINT NOT NULL)";
const INSERT: &str = "INSERT INTO note VALUES ($1)";
const PATHS: [&str; 3] = ["/problems", "/wrapped", "/own"];

/// The handlers of `PATHS`, which insert a note with the closure `$insert`. It is a macro because
/// the transactions of the two stores have different types.
macro_rules! handlers {
    ($insert:ident) => {{
        let problems = async move |tx: Tx<_>, Json(number): Json<i64>| {
            $insert(tx, number).await?;
            Ok::<_, Problem>(StatusCode::CREATED)
        };
        let wrapped = async move |tx: Tx<_>, Json(number): Json<i64>| {
            let inserted = $insert(tx, number).await;
            inserted.map_err(|error| Problem::internal(Wrapped(error)))?;
            Ok::<_, Problem>(StatusCode::CREATED)
        };
        let own = async move |tx: Tx<_>, Json(number): Json<i64>| {
            $insert(tx, number).await.map_err(Own)?;
            Ok::<_, Own>(StatusCode::CREATED)
        };
        [post(problems), post(wrapped), post(own)]
    }};
}

#[test]
fn what_a_taken_key_says_is_no_failure_on_sqlite() {
    check(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db");
        let (clock, random) = (ManualClock::new().clock(), seeded_random(1));
        let settings = hapax_sqlite::Settings::new(path, clock, random);
        let store = Sqlite::open(settings).unwrap();
        let table = store.write(|db| db.execute(TABLE, []));
        table.await.unwrap();
        let insert = async |mut tx: Tx<hapax_sqlite::Tx>, number: i64| {
            tx.with(move |db| db.execute(INSERT, [number])).await
        };
        ask(&store, handlers!(insert)).await;
    });
}

#[test]
fn what_a_taken_key_says_is_no_failure_on_postgresql() {
    check(async {
        let database = Database::fresh().await;
        let (clock, random) = (ManualClock::new().clock(), seeded_random(1));
        let settings = hapax_postgres::Settings::new(database.url(), clock, random);
        let store = Postgres::open(settings).await.unwrap();
        let made = store.migrate("test", &[(1, "note", TABLE)]).await;
        made.unwrap();
        let insert = async |mut tx: Tx<hapax_postgres::Tx>, number: i64| {
            let first = tx.execute(INSERT, &[&number]).await;
            if first.is_err() {
                // A second statement fails in the same way, and not because the first one failed.
                return tx.execute(INSERT, &[&number]).await;
            }
            first
        };
        ask(&store, handlers!(insert)).await;
    });
}

/// An error of the service that wraps the error of the store.
#[derive(Debug, thiserror::Error)]
#[error("the note was not written")]
struct Wrapped(#[source] StoreError);

/// An error that the service logs and counts itself.
struct Own(StoreError);

impl IntoResponse for Own {
    fn into_response(self) -> Response {
        if !self.0.is_not_claimed() {
            tracing::error!(error = self.0.error_chain(), "the service failed");
            metrics::counter!("service_failures").increment(1);
        }
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

/// Sends a request, its duplicate and a different request with the same key, each to a new node,
/// which does not have the response in memory.
async fn ask<K: Keys>(store: &K, handlers: [MethodRouter; 3]) {
    // Opening a store may log a warning, for instance if `fsync` is off in PostgreSQL.
    drop(log::take());
    for (path, handler) in PATHS.into_iter().zip(handlers) {
        for (body, status, said) in [
            ("1", StatusCode::CREATED, Some("stored")),
            ("1", StatusCode::CREATED, Some("replayed")),
            ("2", StatusCode::CONFLICT, None),
        ] {
            let random = seeded_random(1);
            let mut settings = Settings::new(ManualClock::new().clock(), random.clone());
            settings.tenant = Some(Tenant::new("all").unwrap());
            let operation = Idempotency::new(store.clone(), settings).operation(path);
            let handler = handler.clone().layer(operation.claim_pipelined());
            let router = Router::new().route(path, handler);
            let router = router.layer(RequestIds::new(random));
            let sent = send(router, post_json(path, "k", body)).await;
            let outcome = (sent.status, sent.idempotency());
            assert_eq!(outcome, (status, said), "{path} {body}");
        }
    }
}

/// Runs the future on this thread only, and checks what it has logged, traced and counted.
#[track_caller]
fn check(run: impl Future<Output = ()>) {
    log::listen();
    let counted = count(run);
    let log = log::take();
    // The span of every request must be in the log. Otherwise a missing error would prove nothing.
    let spans = log
        .lines()
        .filter(|line| line.contains("idempotency.outcome=\"mismatch\""));
    assert!(spans.count() >= PATHS.len(), "{log}");
    for failure in ["ERROR", "WARN", "otel.status_code="] {
        assert!(!log.contains(failure), "{failure} in\n{log}");
    }
    check_counts(&counted);
}

#[track_caller]
fn check_counts(counted: &BTreeMap<String, String>) {
    for path in PATHS {
        for (outcome, times) in [
            ("created", "1"),
            ("replayed", "1"),
            ("mismatch", "1"),
            ("released", "0"),
            ("store_error", "0"),
        ] {
            let line = format!(
                "hapax_idempotency_requests_total{{operation=\"POST {path}\",outcome=\"{outcome}\"}}"
            );
            let value = counted.get(&line).map_or("0", String::as_str);
            assert_eq!(value, times, "{line}: {counted:#?}");
        }
    }
    assert_eq!(counted.get("service_failures"), None);
}
