//! Tests of `hapax migrate`: an empty database, a second run, `--print`, `--check`, and refusals.

use hapax_testkit::postgres::Database;
use tokio_postgres::Client;

use crate::{
    hapax::{migrate, run},
    store::{Home, Store, on_both_stores},
};

on_both_stores! {
    an_empty_database_gets_the_tables_once,
    a_check_says_what_is_missing_and_changes_nothing,
    a_database_without_tables_is_refused_with_what_to_run,
}

async fn an_empty_database_gets_the_tables_once(on: Store) {
    let database = Home::empty(on).await;
    let url = database.url();
    let first = run(&["migrate", "--database", &url]).ended(0);
    assert!(first.stdout.starts_with("applied 0001 "), "{first:?}");
    let second = run(&["migrate", "--database", &url]).ended(0);
    assert!(second.stdout.contains("nothing to do"), "{second:?}");
    let third = run(&["migrate", "--json", "--database", &url])
        .ended(0)
        .json();
    assert_eq!(third["applied"], serde_json::json!([]));
}

#[tokio::test]
async fn what_is_printed_is_what_is_applied() {
    let (applied, printed) = (Database::empty().await, Database::empty().await);
    migrate(&applied.url());
    // `--print` needs no database and changes none.
    let sql = run(&["migrate", "--print"]).ended(0).stdout;
    printed.client().await.batch_execute(&sql).await.unwrap();
    let check = run(&["migrate", "--check", "--database", &printed.url()]).ended(0);
    assert!(check.stdout.contains("nothing to do"), "{check:?}");
    let (one, other) = (
        objects(&applied.client().await).await,
        objects(&printed.client().await).await,
    );
    assert!(one.len() > 20, "{one:?}");
    assert_eq!(one, other);
}

async fn a_check_says_what_is_missing_and_changes_nothing(on: Store) {
    let database = Home::empty(on).await;
    let url = database.url();
    let check = run(&["migrate", "--check", "--database", &url]).ended(1);
    assert!(check.stderr.contains("0001 idempotency_keys"), "{check:?}");
    assert!(check.stderr.contains("run `hapax migrate`"), "{check:?}");
    let missing = run(&["migrate", "--check", "--json", "--database", &url])
        .ended(1)
        .json();
    assert!(!missing["missing"].as_array().unwrap().is_empty());
    match &database {
        Home::File(_) => assert!(!database.path().exists()),
        Home::Server(database) => {
            let schema = "SELECT to_regnamespace('hapax') IS NULL";
            let client = database.client().await;
            let nothing: bool = client.query_one(schema, &[]).await.unwrap().get(0);
            assert!(nothing);
        }
    }
}

async fn a_database_without_tables_is_refused_with_what_to_run(on: Store) {
    let database = Home::empty(on).await;
    let url = database.url();
    let refused = run(&["events", "list", "--database", &url]).ended(1);
    assert!(refused.stderr.contains("`hapax migrate`"), "{refused:?}");
    assert!(!refused.stderr.contains("version 0"), "{refused:?}");
    if let Home::File(_) = database {
        assert!(!database.path().exists(), "a wrong path leaves no file");
        std::fs::write(database.path(), "").unwrap();
        let refused = run(&["events", "list", "--database", &url]).ended(1);
        assert!(refused.stderr.contains("no tables of Hapax"), "{refused:?}");
    }
}

#[tokio::test]
async fn a_file_that_a_service_has_open_is_not_migrated() {
    let database = Home::migrated(Store::Sqlite).await;
    let url = database.url();
    let older = "DELETE FROM hapax_migration
                  WHERE version = (SELECT max(version) FROM hapax_migration WHERE namespace = 'hapax')";
    let service = database.sqlite();
    database.change(older, "").await;
    let refused = run(&["migrate", "--database", &url]).ended(1);
    assert!(
        refused.stderr.contains("is in use: the service"),
        "{refused:?}"
    );
    service.close().await.unwrap();
}

#[test]
fn statements_for_an_sqlite_file_are_not_printed() {
    let refused = run(&["migrate", "--print", "--database", "sqlite:a.db"]).ended(2);
    assert!(refused.stderr.contains("for PostgreSQL"), "{refused:?}");
}

#[tokio::test]
async fn two_that_migrate_at_once_do_it_once() {
    let database = Database::empty().await;
    let url = database.url();
    let both = [(); 2].map(|()| {
        let url = url.clone();
        tokio::task::spawn_blocking(move || run(&["migrate", "--database", &url]))
    });
    for ran in both {
        ran.await.unwrap().ended(0);
    }
}

#[tokio::test]
async fn a_schema_that_is_newer_is_refused() {
    let database = Database::empty().await;
    migrate(&database.url());
    let newer = "INSERT INTO hapax.migration (namespace, version, name, checksum)
        VALUES ('hapax', 900, 'later', '')";
    database.client().await.batch_execute(newer).await.unwrap();
    let ran = run(&["migrate", "--database", &database.url()]).ended(1);
    assert!(ran.stderr.contains("version 900"), "{ran:?}");
}

/// Every object of the schema with its definition, and every migration with its checksum.
async fn objects(client: &Client) -> Vec<String> {
    const OBJECTS: &str = "
        SELECT format('%s %s %s', relkind, relname, (
                SELECT string_agg(format('%s %s %s', attname, format_type(atttypid, atttypmod), attnotnull), ', ' ORDER BY attnum)
                FROM pg_attribute WHERE attrelid = pg_class.oid AND attnum > 0))
        FROM pg_class WHERE relnamespace = 'hapax'::regnamespace
        UNION ALL
        SELECT pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace IN ('hapax'::regnamespace, 'hapax_api'::regnamespace)
        UNION ALL
        SELECT format('%s %s %s', version, name, checksum) FROM hapax.migration
        ORDER BY 1";
    let rows = client.query(OBJECTS, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}
