//! The part of the conformance suite about keys and transactions, run against the store whose
//! transactions are sqlx's.

use hapax::{Clock, Random};
use hapax_postgres::{
    Postgres, Settings, Statement, Time, Value,
    adapter::sqlx::{SqlxStore, SqlxTx},
};
use hapax_testkit::{
    postgres::Database,
    store::{Images, StoreUnderTest},
};
use sqlx::PgPool;

const ROWS: &str = "CREATE TABLE business (value text NOT NULL)";
const INSERT: &str = "INSERT INTO business (value) VALUES ($1)";

/// A store on a fresh database, with the pool of a service.
struct Service {
    database: Database,
    settings: Settings,
    pool: PgPool,
    store: SqlxStore,
}

impl Service {
    async fn on(database: Database, settings: Settings) -> Self {
        let postgres = Postgres::open(settings.clone()).await;
        let postgres = postgres.expect("the store does not open");
        let migrated = postgres.migrate("test", &[(1, "business", ROWS)]).await;
        migrated.expect("the migration failed");
        let pool = PgPool::connect(&database.url()).await;
        let pool = pool.expect("the pool does not connect");
        Self {
            store: SqlxStore::new(postgres, pool.clone()),
            database,
            settings,
            pool,
        }
    }
}

impl StoreUnderTest for Service {
    type Store = SqlxStore;

    async fn fresh(clock: Clock, random: Random) -> Self {
        // The template of the tests' server has a secret for derived keys already.
        let database = Database::empty().await;
        let mut settings = Settings::new(database.url(), clock.clone(), random);
        settings.time = Time::Given(clock);
        Self::on(database, settings).await
    }

    async fn reopen(self) -> Self {
        self.pool.close().await;
        self.store.postgres().close();
        Self::on(self.database, self.settings).await
    }

    fn store(&self) -> &SqlxStore {
        &self.store
    }

    async fn write_row(tx: &mut SqlxTx, value: &str) {
        let insert = sqlx::query(INSERT).bind(value);
        let wrote = insert.execute(&mut **tx).await;
        wrote.expect("the row was not written");
    }

    fn row_statement(value: &str) -> Statement {
        Statement::new(INSERT, [Value::from(value)])
    }

    fn failing_statement() -> Statement {
        Statement::new(INSERT, [Value::Null])
    }

    async fn rows(&self) -> Vec<String> {
        let rows = sqlx::query_scalar("SELECT value FROM business");
        let rows = rows.fetch_all(&self.pool).await;
        rows.expect("the rows were not read")
    }
}

impl Images for Service {
    async fn keep_image(&self) {
        unreachable!("keys and transactions need no image")
    }

    async fn set_back(&self) {
        unreachable!("keys and transactions need no image")
    }
}

hapax_testkit::store_suite!(Service, keys);
