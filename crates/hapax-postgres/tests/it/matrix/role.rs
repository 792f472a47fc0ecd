//! A service's role: it owns nothing and has exactly the grants of the guide.

use hapax::store::{ClaimOutcome, Effect, KeyMaintenance, Keys, Transaction};
use hapax_postgres::{Migration, OpenError, Postgres, Schema, SchemaError, Settings, Statement};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, message, response, single_shot},
    postgres::{Cluster, Database},
};

use super::run;
use crate::fixture::{INSERT, ROWS, settings};

const GUIDE: &str = include_str!("../../../../../docs/guides/postgres-roles.md");
const OWNER: &str = "shop_owner";
pub(super) const SERVICE: &str = "shop_service";
const TABLES: &[Migration<'static>] = &[(1, "note", ROWS)];

#[tokio::test]
async fn a_role_with_the_guides_grants_and_no_more_serves() {
    let (_cluster, store) = served().await;
    let ClaimOutcome::Open(mut tx) = store.claim(claim("k")).await.unwrap() else {
        panic!("expected a free key")
    };
    tx.execute(INSERT, &[&"one"]).await.unwrap();
    tx.emit(event("one")).unwrap();
    let _first = tx.accept(&message("orders", "m1", "{}")).await.unwrap();
    tx.complete(&response("one"), Effect::Keep).await.unwrap();
    let two = Statement::new(INSERT, ["two".into()]);
    store
        .execute_plan(single_shot(claim("k2"), vec![two], "two"))
        .await
        .unwrap();
    assert!(store.look_up(&claim("k2").scope).await.unwrap().is_some());
    assert!(store.forget(&claim("k2").scope).await.unwrap());
    assert_eq!(store.purge_keys().await.unwrap(), []);
}

#[tokio::test]
async fn a_role_with_the_guides_grants_can_make_change_and_empty_nothing() {
    let (_cluster, store) = served().await;
    for refused in [
        "CREATE TABLE hapax.mine ()",
        "CREATE SCHEMA mine",
        "CREATE DATABASE mine",
        "ALTER TABLE hapax.idempotency_key ADD COLUMN mine text",
        "DROP TABLE hapax.outbox_event",
        "TRUNCATE hapax.inbox_message",
        "INSERT INTO hapax.migration (namespace, version, name, checksum) VALUES ('mine', 1, '', '')",
        "SELECT setval('hapax.outbox_event_id', 1)",
    ] {
        let error = store.read(refused, &[]).await.unwrap_err().error_chain();
        assert!(
            error.contains("permission denied") || error.contains("must be owner"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_service_that_may_not_migrate_says_which_version_is_missing() {
    let (cluster, store) = served().await;
    let two = [TABLES[0], (2, "more", "CREATE TABLE more ()")];
    let refused = store.migrate("test", &two).await.unwrap_err();
    assert_matches!(
        refused,
        SchemaError::Older {
            found: 1,
            known: 2,
            ..
        }
    );
    let empty = Database::on(&cluster.url()).await;
    let mut settings = settings(&url(&empty, SERVICE));
    settings.schema = Schema::Check;
    let refused = Postgres::open(settings).await.err().unwrap();
    let OpenError::Schema {
        source: SchemaError::Older { found: 0, .. },
    } = refused
    else {
        panic!("{refused}")
    };
}

/// A store opened by the service's role, on a server that was set up as the guide says.
async fn served() -> (Cluster, Postgres) {
    let cluster = Cluster::start().await;
    for statement in lines(0).split_inclusive(';') {
        run(&cluster.url(), statement).await;
    }
    let shop = |role: &str| format!("postgres://{role}@{}/shop", cluster.address());
    let owner = Postgres::open(settings(&shop(OWNER))).await.unwrap();
    owner.migrate("test", TABLES).await.unwrap();
    owner.close();
    run(&shop(OWNER), lines(1)).await;
    let mut settings = settings(&shop(SERVICE));
    settings.schema = Schema::Check;
    let store = Postgres::open(settings).await.unwrap();
    store.migrate("test", TABLES).await.unwrap();
    (cluster, store)
}

/// Creates the roles of the guide, one of which owns the database.
pub(super) async fn prepare(database: &Database) {
    for role in [OWNER, SERVICE] {
        // Many tests run this at once; only one of them creates the roles.
        let make = format!(
            "DO $$ BEGIN CREATE ROLE {role} LOGIN;
             EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
        );
        run(&database.url(), &make).await;
    }
    let give = format!("ALTER DATABASE {} OWNER TO {OWNER}", database.name());
    run(&database.url(), &give).await;
}

/// Applies the migrations as the owner and grants what the guide grants.
pub(super) async fn install(database: &Database, service: &Settings, tables: &[Migration<'_>]) {
    let mut settings = service.clone();
    settings.url = url(database, OWNER);
    settings.schema = Schema::Apply;
    let owner = Postgres::open(settings)
        .await
        .expect("the store does not open for the owner");
    let made = owner.migrate("law", tables).await;
    made.expect("the migrations failed for the owner");
    owner.close();
    run(&url(database, OWNER), lines(1)).await;
}

/// The URL of a database for this role.
pub(super) fn url(database: &Database, role: &str) -> String {
    let url = database.url();
    let (_, rest) = url.split_once('@').expect("the server's URL has no user");
    format!("postgres://{role}@{rest}")
}

/// A block of SQL in the guide.
fn lines(block: usize) -> &'static str {
    let blocks = GUIDE.split("```sql\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| rest.split_once("\n```").map(|(sql, _)| sql));
    blocks
        .nth(block)
        .expect("the guide does not have this block")
}
