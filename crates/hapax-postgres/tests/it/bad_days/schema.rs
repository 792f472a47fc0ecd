//! Schema checks: tables that are missing, newer than this version, or different from the
//! migrations.

use hapax_postgres::{OpenError, Postgres, Schema, SchemaError};
use hapax_testkit::{postgres::Database, wait::eventually};

use crate::fixture::{Fixture, PATIENCE, settings};

#[tokio::test(flavor = "multi_thread")]
async fn missing_tables_are_asked_for_by_name_and_nothing_is_made() {
    let database = Database::empty().await;
    let mut settings = settings(&database.url());
    settings.schema = Schema::Check;
    let opened = Postgres::open(settings.clone()).await;
    let Err(OpenError::Schema {
        source: SchemaError::Older { found: 0, .. },
    }) = opened
    else {
        panic!("{opened:?}");
    };
    let made = "SELECT count(*) FROM pg_namespace WHERE nspname = 'hapax'";
    let row = database.client().await.query_one(made, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0);
    settings.schema = Schema::Apply;
    Postgres::open(settings.clone()).await.unwrap();
    settings.schema = Schema::Check;
    Postgres::open(settings).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_a_later_version_are_refused_and_left_alone() {
    let fixture = Fixture::new().await;
    let later = "INSERT INTO hapax.migration (namespace, version, name, checksum)
        VALUES ('hapax', 999, 'later', 'x')";
    fixture.run(later).await;
    let opened = Postgres::open(settings(&fixture.database.url())).await;
    let Err(OpenError::Schema {
        source: SchemaError::Newer { found: 999, .. },
    }) = &opened
    else {
        panic!("{opened:?}");
    };
    let rows = "SELECT count(*) FROM hapax.migration WHERE version = 999";
    assert_eq!(fixture.count(rows).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_another_file_made_are_refused() {
    let fixture = Fixture::new().await;
    let changed =
        "UPDATE hapax.migration SET checksum = 'x' WHERE namespace = 'hapax' AND version = 1";
    fixture.run(changed).await;
    let opened = Postgres::open(settings(&fixture.database.url())).await;
    let Err(OpenError::Schema {
        source: SchemaError::Changed { version: 1, .. },
    }) = &opened
    else {
        panic!("{opened:?}");
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_is_given_up_leaves_nothing_and_no_transaction() {
    let fixture = Fixture::with(|settings| settings.connections = 2).await;
    let tables = [(1, "slow", "CREATE TABLE slow (); SELECT pg_sleep(2)")];
    let store = fixture.store.clone();
    let migrating = tokio::spawn(async move { store.migrate("slow", &tables).await });
    let running = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'active' AND query LIKE 'CREATE TABLE slow%'";
    eventually(PATIENCE, async || fixture.count(running).await == 1).await;
    migrating.abort();
    fixture.idle().await;
    let made = "SELECT count(*) FROM pg_class WHERE relname = 'slow'";
    assert_eq!(fixture.count(made).await, 0);
    fixture.store.migrate("slow", &tables).await.unwrap();
    assert_eq!(fixture.count(made).await, 1);
}
