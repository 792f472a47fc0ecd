//! The law of stores, held against this one.

use std::sync::Arc;

use hapax::{Clock, Random};
use hapax_sqlite::{
    Settings, Sqlite, Statement, Tx,
    rusqlite::{Connection, types::Value},
};
use hapax_testkit::{events::keyring, store::StoreUnderTest};
use tempfile::TempDir;

const ROWS: &str = "CREATE TABLE business (value TEXT NOT NULL)";
const INSERT: &str = "INSERT INTO business (value) VALUES (?1)";

/// A store in a directory of its own.
struct Embedded<const ENCRYPTED: bool = false> {
    store: Sqlite,
    settings: Settings,
    directory: Arc<TempDir>,
}

impl<const ENCRYPTED: bool> StoreUnderTest for Embedded<ENCRYPTED> {
    type Store = Sqlite;

    async fn fresh(clock: Clock, random: Random) -> Self {
        let directory = Arc::new(tempfile::tempdir().expect("a directory can be made"));
        let mut settings = Settings::new(directory.path().join("law.db"), clock, random);
        if ENCRYPTED {
            settings.keyring = keyring(&[1]);
        }
        let store = Sqlite::open(settings.clone()).expect("the store opens");
        let migrated = store.migrate("law", &[(1, "business", ROWS)]).await;
        migrated.expect("the business table is made");
        Self {
            store,
            settings,
            directory,
        }
    }

    async fn reopen(self) -> Self {
        let Self {
            store,
            settings,
            directory,
        } = self;
        store.close().await.expect("the store closes");
        let store = Sqlite::open(settings.clone()).expect("the store opens again");
        Self {
            store,
            settings,
            directory,
        }
    }

    fn store(&self) -> &Sqlite {
        &self.store
    }

    async fn write_row(tx: &mut Tx, value: &str) {
        let value = value.to_owned();
        let wrote = tx
            .with(move |conn| conn.prepare_cached(INSERT)?.execute([value]))
            .await;
        wrote.expect("a row is written");
    }

    fn row_statement(value: &str) -> Statement {
        Statement::new(INSERT, [Value::Text(value.to_owned())])
    }

    fn failing_statement() -> Statement {
        Statement::new(INSERT, [Value::Null])
    }

    async fn rows(&self) -> Vec<String> {
        let read = |conn: &Connection| {
            let mut rows = conn.prepare("SELECT value FROM business")?;
            rows.query_map([], |row| row.get(0))?.collect()
        };
        self.store.read(read).await.expect("the rows are read")
    }
}

hapax_testkit::store_suite!(Embedded);

/// The same law where answers, requests and payloads are encrypted.
mod encrypted {
    type Encrypted = super::Embedded<true>;
    hapax_testkit::store_suite!(Encrypted);
}
