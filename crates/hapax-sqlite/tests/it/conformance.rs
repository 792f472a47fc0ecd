//! Runs the conformance suite of stores on the SQLite store.

use std::{fs, path::Path, sync::Arc};

use hapax::{Clock, Random, operational::OperationalEvents};
use hapax_sqlite::{
    Settings, Sqlite, Statement, Tx,
    rusqlite::{Connection, types::Value},
};
use hapax_testkit::{
    events::keyring,
    store::{Images, StoreUnderTest},
};
use tempfile::TempDir;

const ROWS: &str = "CREATE TABLE business (value TEXT NOT NULL)";
const INSERT: &str = "INSERT INTO business (value) VALUES (?1)";

/// A store in a temporary directory.
pub(crate) struct Embedded<const ENCRYPTED: bool = false> {
    pub(crate) store: Sqlite,
    pub(crate) settings: Settings,
    directory: Arc<TempDir>,
}

impl<const ENCRYPTED: bool> Embedded<ENCRYPTED> {
    /// A fresh store that emits these operational events.
    pub(crate) async fn opened(clock: Clock, random: Random, events: OperationalEvents) -> Self {
        let directory = Arc::new(tempfile::tempdir().expect("a directory can be created"));
        let mut settings = Settings::new(directory.path().join("law.db"), clock, random);
        settings.operational_events = events;
        if ENCRYPTED {
            settings.keyring = keyring(&[1]);
        }
        let store = Sqlite::open(settings.clone()).expect("the store opens");
        let migrated = store.migrate("law", &[(1, "business", ROWS)]).await;
        migrated.expect("the business table is created");
        Self {
            store,
            settings,
            directory,
        }
    }
}

impl<const ENCRYPTED: bool> StoreUnderTest for Embedded<ENCRYPTED> {
    type Store = Sqlite;

    async fn fresh(clock: Clock, random: Random) -> Self {
        Self::opened(clock, random, OperationalEvents::none()).await
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

impl<const ENCRYPTED: bool> Images for Embedded<ENCRYPTED> {
    async fn keep_image(&self) {
        image(&self.settings.path, &self.directory.path().join("image.db"));
    }

    async fn set_back(&self) {
        set_back(&self.settings.path, &self.directory.path().join("image.db"));
    }
}

/// Copies an open database, as `.backup` does.
pub(crate) fn image(database: &Path, image: &Path) {
    let _none = fs::remove_file(image);
    let conn = Connection::open(database).expect("the database opens");
    let copied = conn.execute("VACUUM INTO ?1", [image.to_str().expect("a path")]);
    copied.expect("the database is copied");
}

/// The tables that are replaced: all but the audit log, which refuses that its rows are deleted.
const REPLACED: &str = "
    SELECT name
    FROM sqlite_schema
    WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name <> 'hapax_audit_log'";

/// Replaces the contents of an open database by those of a copy, as `.restore` does: in one
/// transaction of another connection.
pub(crate) fn set_back(database: &Path, image: &Path) {
    let conn = Connection::open(database).expect("the database opens");
    let attach = conn.execute("ATTACH ?1 AS image", [image.to_str().expect("a path")]);
    attach.expect("the copy is attached");
    let mut tables = conn.prepare(REPLACED).expect("the tables are listed");
    let names = tables.query_map([], |row| row.get::<_, String>(0));
    let replace = names.expect("the tables are listed").map(|name| {
        let name = name.expect("a table has a name");
        format!("DELETE FROM main.{name}; INSERT INTO main.{name} SELECT * FROM image.{name};")
    });
    let replace = replace.collect::<String>();
    let all = format!("PRAGMA foreign_keys = off; BEGIN IMMEDIATE; {replace} COMMIT");
    conn.execute_batch(&all).expect("the rows are replaced");
}

hapax_testkit::store_suite!(Embedded);

/// The same suite with encrypted responses, requests and payloads.
mod encrypted {
    type Encrypted = super::Embedded<true>;
    hapax_testkit::store_suite!(Encrypted);
}
