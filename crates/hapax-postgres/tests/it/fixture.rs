//! Fixture: a store on a fresh database, a table for the service's rows, and what most tests do
//! with both.

use std::{sync::Arc, time::Duration};

use hapax::{
    idempotency::{Claim, PlannedRequest},
    store::{ClaimOutcome, Keys},
};
use hapax_postgres::{Postgres, Settings, Statement, Tx, Value};
pub(crate) use hapax_testkit::clock::system_clock as clock;
use hapax_testkit::{
    clock::seeded_random,
    events::{claim, event, single_shot},
    postgres::Database,
    wait::eventually,
};
use tokio_postgres::Client;

pub(crate) const ROWS: &str = "CREATE TABLE note (text text NOT NULL)";
pub(crate) const INSERT: &str = "INSERT INTO note (text) VALUES ($1)";
pub(crate) const INSERT_EACH: &str = "INSERT INTO note (text) SELECT unnest($1::text[])";
/// How long a test waits for a condition.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A store on a fresh database.
pub(crate) struct Fixture {
    pub(crate) store: Postgres,
    pub(crate) database: Arc<Database>,
    /// A connection that bypasses the store.
    pub(crate) plain: Client,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(set: impl FnOnce(&mut Settings)) -> Self {
        Self::on(Arc::new(Database::fresh().await), set).await
    }

    /// A second node on the same database.
    pub(crate) async fn beside(&self) -> Self {
        Self::on(Arc::clone(&self.database), |_| {}).await
    }

    pub(crate) async fn on(database: Arc<Database>, set: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings(&database.url());
        set(&mut settings);
        let store = Postgres::open(settings)
            .await
            .expect("the store does not open");
        let migrated = store.migrate("test", &[(1, "note", ROWS)]).await;
        migrated.expect("the migration failed");
        Self {
            store,
            plain: database.client().await,
            database,
        }
    }

    /// The committed notes, sorted.
    pub(crate) async fn notes(&self) -> Vec<String> {
        let rows = self.plain.query("SELECT text FROM note ORDER BY text", &[]);
        let rows = rows.await.expect("the notes were not read");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Runs SQL, past the store.
    pub(crate) async fn run(&self, sql: &str) {
        let ran = self.plain.batch_execute(sql).await;
        ran.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The result of a query that returns one number.
    pub(crate) async fn count(&self, sql: &str) -> i64 {
        let row = self.plain.query_one(sql, &[]).await;
        row.expect("the query failed").get(0)
    }

    /// Claims a key that must be free.
    pub(crate) async fn claim(&self, claim: Claim) -> Tx {
        match self.store.claim(claim).await.expect("the claim failed") {
            ClaimOutcome::Open(tx) => tx,
            ClaimOutcome::Taken(taken) => panic!("expected a free key, got {taken:?}"),
        }
    }

    /// Waits until the store has no open transaction and no lock in the database, except for the
    /// lock of a relay that sleeps.
    pub(crate) async fn idle(&self) {
        let open = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
              AND backend_type = 'client backend'";
        let locks = "SELECT count(*) FROM pg_locks
            WHERE locktype = 'advisory'
              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
              AND NOT (classid = 'hapax.outbox_event'::regclass AND objid = 1
                       AND mode = 'ExclusiveLock')";
        eventually(PATIENCE, async || {
            self.count(open).await == 0 && self.count(locks).await == 0
        })
        .await;
    }
}

/// The settings with which tests open the database at `url`.
pub(crate) fn settings(url: &str) -> Settings {
    Settings::new(url, clock(), seeded_random(1))
}

/// A single-shot request that inserts its key as a note and emits one event.
pub(crate) fn plan(key: &str) -> PlannedRequest<Statement> {
    plan_of(key, [Statement::each(INSERT_EACH, [Value::from(key)])])
}

/// A single-shot request with these statements that emits one event.
pub(crate) fn plan_of(
    key: &str,
    statements: impl IntoIterator<Item = Statement>,
) -> PlannedRequest<Statement> {
    let mut plan = single_shot(claim(key), statements.into_iter().collect(), key);
    plan.events.push(event(key));
    plan
}
