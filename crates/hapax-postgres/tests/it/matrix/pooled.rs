//! A pooler in transaction mode: the store leaves nothing on a server connection that other clients
//! use next.

use std::{process::Stdio, sync::Arc};

use futures_util::future::join_all;
use hapax::{
    event::Headers,
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::{Postgres, Statement, Value};
use hapax_testkit::{
    assert_matches,
    events::{claim, response, single_shot},
    postgres::{Database, Pooler, server},
};
use tokio_postgres::Client;

use super::variable;
use crate::{
    conformance::Server,
    fixture::{INSERT, ROWS, settings},
};

const LEFT: &str = "SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql";

/// A store behind a pooler with a fixed number of server connections.
struct Pooled {
    store: Postgres,
    pooler: Pooler,
    database: Arc<Database>,
}

impl Pooled {
    async fn with(connections: usize) -> Self {
        let database = Arc::new(Database::fresh().await);
        let pooler = Pooler::before(&server(), connections).await;
        let store = open(&pooler.url(database.name())).await;
        let made = store.migrate("test", &[(1, "note", ROWS)]).await;
        made.expect("the migration failed");
        Self {
            store,
            pooler,
            database,
        }
    }

    /// Another client of the pooler, which prepares no statements.
    async fn other(&self) -> Client {
        hapax_testkit::postgres::connect(&self.pooler.url(self.database.name())).await
    }
}

async fn open(url: &str) -> Postgres {
    let mut settings = settings(url);
    settings.pooled = true;
    Postgres::open(settings)
        .await
        .expect("the store does not open")
}

/// The modules of the conformance suite that a pooler could affect, in every run; the matrix runs
/// all modules.
type Law = Server<true>;

hapax_testkit::suite! { Law, store,
    keys {
        an_answer_survives_a_restart
        of_many_claims_at_once_one_runs_and_the_others_replay
        a_dropped_claim_lets_its_key_go
        a_dropped_effect_keeps_the_answer_alone
        a_claim_cut_off_by_a_restart_leaves_nothing
    }
    transaction {
        a_caller_that_leaves_while_it_waits_delays_no_other
        an_abandoned_completion_is_whole_or_nothing
    }
    single_shot {
        of_many_single_shots_of_one_key_one_runs
        hundreds_of_single_shots_at_once_all_commit
        a_failing_statement_leaves_nothing_and_harms_no_neighbour
        an_abandoned_single_shot_is_whole_or_nothing
    }
    recovery_points {
        keys_are_entered_and_finished_at_once
    }
    outbox {
        a_reader_among_writers_loses_and_repeats_nothing
    }
    inbox {
        of_many_that_take_one_message_one_commits
    }
    sagas {
        a_saga_exists_exactly_when_its_transaction_commits
        each_due_saga_is_taken_once
        a_turn_commits_rows_events_and_its_step
        a_turn_that_is_rolled_back_leaves_nothing
        a_fenced_worker_writes_nothing
        sagas_are_listed_page_by_page
    }
    signals {
        a_signal_that_crosses_a_worker_is_not_lost
    }
    deliveries {
        opening_again_fences_the_owner_before
    }
}

#[tokio::test]
async fn no_statement_is_left_on_a_shared_connection_whatever_became_of_it() {
    let pooled = Pooled::with(1).await;
    let store = &pooled.store;
    let other = pooled.other().await;
    check_nothing_left(&other, "opening").await;
    // The rows outlive their transaction, and with them the statement that they reference.
    let read = store
        .read("SELECT $1::text, $2::int8", &[&"a", &1_i64])
        .await
        .unwrap();
    check_nothing_left(&other, "a read").await;
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    let rows = tx
        .query("SELECT text FROM note WHERE text = $1", &[&"a"])
        .await
        .unwrap();
    tx.execute(INSERT, &[&"a"]).await.unwrap();
    tx.commit().await.unwrap();
    check_nothing_left(&other, "a transaction").await;
    drop((read, rows));
    check_nothing_left(&other, "the rows that were read").await;
    store.read("SELECT nonsense", &[]).await.unwrap_err();
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    tx.execute(INSERT, &[&None::<&str>]).await.unwrap_err();
    tx.rollback().await;
    check_nothing_left(&other, "statements that failed").await;
    let plan = single_shot(
        claim("k"),
        vec![Statement::new(INSERT, [Value::from("k")])],
        "k",
    );
    store.execute_plan(plan).await.unwrap();
    check_nothing_left(&other, "a single shot").await;
}

#[tokio::test]
async fn types_of_the_databases_own_are_known_without_leaving_a_statement() {
    let pooled = Pooled::with(1).await;
    let other = pooled.other().await;
    let types = "CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE DOMAIN name AS text;
        CREATE TYPE pair AS (mood mood, name name); CREATE TABLE feeling (mood mood, pair pair)";
    other.batch_execute(types).await.unwrap();
    let store = &pooled.store;
    for _ in 0..3 {
        let write = "INSERT INTO feeling VALUES ($1::text::mood, ROW('sad', $2)::pair)";
        let mut tx = store.begin(None, Headers::new()).await.unwrap();
        tx.execute(write, &[&"glad", &"a"]).await.unwrap();
        tx.query("SELECT mood, pair FROM feeling", &[])
            .await
            .unwrap();
        tx.commit().await.unwrap();
        check_nothing_left(&other, "types of the database's own").await;
        store
            .read("SELECT mood, pair FROM feeling", &[])
            .await
            .unwrap();
        check_nothing_left(&other, "a read of such types").await;
    }
    let plan = "INSERT INTO feeling (mood) VALUES ('sad') RETURNING mood, pair";
    let plan = single_shot(claim("k"), vec![Statement::new(plan, [])], "k");
    store.execute_plan(plan).await.unwrap();
    check_nothing_left(&other, "a single shot of such types").await;
}

#[tokio::test]
async fn a_statement_is_learned_again_after_its_table_has_changed() {
    let pooled = Pooled::with(2).await;
    let other = pooled.other().await;
    let make = "CREATE TABLE thing (value int4)";
    other.batch_execute(make).await.unwrap();
    let insert = "INSERT INTO thing VALUES ($1)";
    pooled.store.read(insert, &[&1_i32]).await.unwrap();
    let change = "ALTER TABLE thing ALTER COLUMN value TYPE date USING '2026-01-01'";
    other.batch_execute(change).await.unwrap();
    let as_text = "INSERT INTO thing VALUES ($1)";
    // The old type does not fit any more, so the first read fails; the next one prepares the
    // statement again.
    pooled.store.read(as_text, &[&1_i32]).await.unwrap_err();
    let refused = pooled
        .store
        .read(as_text, &[&1_i32])
        .await
        .unwrap_err()
        .error_chain();
    assert!(refused.contains("parameter 0"), "{refused}");
}

#[tokio::test]
async fn parameters_too_few_or_too_many_are_refused() {
    let pooled = Pooled::with(2).await;
    for _ in 0..2 {
        for params in [&[][..], &[&1_i64, &2_i64]] {
            let params: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> =
                params.iter().map(|it: &&i64| *it as _).collect();
            let refused = pooled
                .store
                .read("SELECT $1::int8", &params)
                .await
                .unwrap_err();
            assert_matches!(refused, StoreError::Statement { .. });
        }
        pooled
            .store
            .read("SELECT $1::int8", &[&1_i64])
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn bounds_hold_in_a_transaction_and_are_not_left_on_a_shared_connection() {
    let pooled = Pooled::with(1).await;
    let bound = "SELECT current_setting('statement_timeout')
        || current_setting('idle_in_transaction_session_timeout')";
    let mut tx = pooled.store.begin(None, Headers::new()).await.unwrap();
    let inside: String = tx.query(bound, &[]).await.unwrap()[0].get(0);
    tx.commit().await.unwrap();
    let inside_a_read: String = pooled.store.read(bound, &[]).await.unwrap()[0].get(0);
    let other = pooled.other().await;
    let outside = other.simple_query(bound).await.unwrap();
    let tokio_postgres::SimpleQueryMessage::Row(outside) = &outside[1] else {
        panic!("the setting was not read")
    };
    assert_eq!(
        (inside.as_str(), inside_a_read.as_str()),
        ("30s30s", "30s30s")
    );
    assert_eq!(outside.get(0), Some("00"));
}

#[tokio::test]
async fn a_caller_that_leaves_in_the_middle_of_a_read_leaves_no_transaction_open() {
    let pooled = Pooled::with(2).await;
    let store = pooled.store.clone();
    let read = tokio::spawn(async move { store.read("SELECT pg_sleep(60)", &[]).await });
    let plain = pooled.database.client().await;
    let open = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%'
        AND datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()";
    let opened = async || plain.query_one(open, &[]).await.unwrap().get::<_, i64>(0);
    let patience = crate::fixture::PATIENCE;
    hapax_testkit::wait::eventually(patience, async || opened().await == 1).await;
    read.abort();
    hapax_testkit::wait::eventually(patience / 2, async || opened().await == 0).await;
    pooled.store.read("SELECT 1", &[]).await.unwrap();
}

#[tokio::test]
async fn a_commit_whose_server_is_lost_behind_the_pooler_is_asked_about() {
    let pooled = Pooled::with(2).await;
    let ClaimOutcome::Open(mut tx) = pooled.store.claim(claim("k")).await.unwrap() else {
        panic!("expected a free key")
    };
    let pid: i32 = tx.query("SELECT pg_backend_pid()", &[]).await.unwrap()[0].get(0);
    let plain = pooled.database.client().await;
    plain
        .query("SELECT pg_terminate_backend($1, 5000)", &[&pid])
        .await
        .unwrap();
    // Commit recovery looks the key up and does not find it, so the request may run again at once.
    let lost = tx.complete(&response("k"), Effect::Keep).await.unwrap_err();
    assert!(
        matches!(lost, StoreError::Conflict { .. }),
        "{}",
        lost.error_chain()
    );
    assert!(matches!(
        pooled.store.claim(claim("k")).await.unwrap(),
        ClaimOutcome::Open(_)
    ));
}

/// The driver numbers its statements from zero in every process, so two processes that share a
/// server connection use the same names. This test starts itself twice, as two such services.
#[tokio::test]
async fn services_in_two_processes_share_connections_and_never_a_name() {
    if let Some(url) = variable("HAPAX_TEST_SERVICE") {
        return serve(&url).await;
    }
    let pooled = Pooled::with(2).await;
    let url = pooled.pooler.url(pooled.database.name());
    let services = (0..2).map(|_| {
        let program = std::env::current_exe().expect("the test does not know its executable");
        let mut service = tokio::process::Command::new(program);
        let name = "matrix::pooled::services_in_two_processes_share_connections_and_never_a_name";
        service
            .args(["--exact", name])
            .env("HAPAX_TEST_SERVICE", &url);
        service.stdin(Stdio::null()).kill_on_drop(true).output()
    });
    for served in join_all(services).await {
        let served = served.expect("the service did not run");
        let said = String::from_utf8_lossy(&served.stdout);
        assert!(served.status.success(), "{said}");
        assert!(said.contains("1 passed"), "{said}");
    }
    let notes = pooled
        .store
        .read("SELECT count(*) FROM note", &[])
        .await
        .unwrap();
    assert_eq!(notes[0].get::<_, i64>(0), 2 * 8 * 20);
}

/// The work of each of the two processes: many different statements, on as many connections as
/// allowed.
async fn serve(url: &str) {
    let store = open(url).await;
    let clients = (0..8).map(|client| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut kept = Vec::new();
            for round in 0..20 {
                let sql = format!("SELECT $1::text, {client}, {round}");
                kept.push(store.read(&sql, &[&"a"]).await.unwrap());
                let mut tx = store.begin(None, Headers::new()).await.unwrap();
                kept.push(
                    tx.query(&format!("SELECT {round}, $1::int8"), &[&1_i64])
                        .await
                        .unwrap(),
                );
                tx.execute(INSERT, &[&"a"]).await.unwrap();
                tx.commit().await.unwrap();
            }
        })
    });
    for client in join_all(clients).await {
        client.expect("a statement failed");
    }
}

async fn check_nothing_left(other: &Client, by: &str) {
    let left = other
        .simple_query(LEFT)
        .await
        .expect("the connection is still shared");
    let tokio_postgres::SimpleQueryMessage::Row(row) = &left[1] else {
        panic!("the count was not read")
    };
    assert_eq!(row.get(0), Some("0"), "{by} left a statement");
}
