//! The law of stores, held against this one.

use std::sync::Arc;

use hapax::{Clock, Random};
use hapax_postgres::{Postgres, Settings, Statement, Time, Tx, Value};
use hapax_testkit::{postgres::Database, store::StoreUnderTest};

const ROWS: &str = "CREATE TABLE business (value text NOT NULL)";
const INSERT: &str = "INSERT INTO business (value) VALUES ($1)";

/// A store on a database of its own.
struct Server {
    store: Postgres,
    settings: Settings,
    database: Arc<Database>,
}

impl StoreUnderTest for Server {
    type Store = Postgres;

    async fn fresh(clock: Clock, random: Random) -> Self {
        let database = Arc::new(Database::fresh().await);
        let mut settings = Settings::new(database.url(), clock.clone(), random);
        settings.time = Time::Given(clock);
        let store = Postgres::open(settings.clone()).await;
        let store = store.expect("the store opens");
        let migrated = store.migrate("law", &[(1, "business", ROWS)]).await;
        migrated.expect("the business table is made");
        Self {
            store,
            settings,
            database,
        }
    }

    async fn reopen(self) -> Self {
        let Self {
            store,
            settings,
            database,
        } = self;
        store.close();
        let store = Postgres::open(settings.clone()).await;
        Self {
            store: store.expect("the store opens again"),
            settings,
            database,
        }
    }

    fn store(&self) -> &Postgres {
        &self.store
    }

    async fn write_row(tx: &mut Tx, value: &str) {
        let wrote = tx.execute(INSERT, &[&value]).await;
        wrote.expect("a row is written");
    }

    fn row_statement(value: &str) -> Statement {
        Statement::new(INSERT, [Value::from(value)])
    }

    fn failing_statement() -> Statement {
        Statement::new(INSERT, [Value::Null])
    }

    async fn rows(&self) -> Vec<String> {
        let rows = self.store.read("SELECT value FROM business", &[]).await;
        let rows = rows.expect("the rows are read");
        rows.iter().map(|row| row.get(0)).collect()
    }
}

hapax_testkit::store_suite!(Server);
