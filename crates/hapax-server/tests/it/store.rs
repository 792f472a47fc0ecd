//! Fixture: a database on either store, as a command is given it.

use std::path::PathBuf;

use hapax::{
    event::{Headers, NewEvent},
    store::{Keys, Transaction as _},
};
use hapax_postgres::Postgres;
use hapax_sqlite::{Sqlite, rusqlite};
pub(crate) use hapax_testkit::{both_stores::Store, on_both_stores};
use hapax_testkit::{
    clock::{seeded_random, system_clock},
    postgres::Database,
};
use serde_json::json;
use tempfile::TempDir;

use crate::hapax::migrate;

/// A database that is deleted when it is dropped.
#[derive(Debug)]
pub(crate) enum Home {
    /// A folder with the file `shop.db`.
    File(TempDir),
    /// A database on the tests' server.
    Server(Database),
}

impl Home {
    /// A database without tables; on SQLite there is no file yet.
    pub(crate) async fn empty(on: Store) -> Self {
        match on {
            Store::Sqlite => Self::File(tempfile::tempdir().unwrap()),
            Store::Postgres => Self::Server(Database::empty().await),
        }
    }

    /// A database with the tables.
    pub(crate) async fn migrated(on: Store) -> Self {
        let home = match on {
            Store::Sqlite => Self::empty(on).await,
            Store::Postgres => Self::Server(Database::fresh().await),
        };
        migrate(&home.url());
        home
    }

    /// The URL for `--database`.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::File(_) => format!("sqlite:{}", self.path().display()),
            Self::Server(database) => database.url(),
        }
    }

    /// The path of the SQLite file.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::File(folder) => folder.path().join("shop.db"),
            Self::Server(_) => panic!("the database is not a file"),
        }
    }

    /// Opens the file as a service does.
    pub(crate) fn sqlite(&self) -> Sqlite {
        // The ids of the events of two stores must differ.
        let at = u64::try_from(system_clock().now().as_millis()).unwrap();
        let settings = hapax_sqlite::Settings::new(self.path(), system_clock(), seeded_random(at));
        Sqlite::open(settings).unwrap()
    }

    /// The store on the tests' server.
    pub(crate) async fn postgres(&self) -> Postgres {
        let settings = hapax_postgres::Settings::new(self.url(), system_clock(), seeded_random(1));
        Postgres::open(settings).await.unwrap()
    }

    /// Emits events in one transaction, as a service would. On SQLite, no relay may be running: the
    /// file belongs to one process.
    pub(crate) async fn emit(&self, kind: &str, count: usize) {
        match self {
            Self::File(_) => {
                let store = self.sqlite();
                emit(&store, kind, count).await;
                store.close().await.unwrap();
            }
            Self::Server(database) => {
                crate::hapax::emit(&database.client().await, kind, count).await;
            }
        }
    }

    /// Executes SQL directly in the database, in the dialect of its store.
    pub(crate) async fn change(&self, sqlite: &str, postgres: &str) {
        match self {
            Self::File(_) => {
                let connection = rusqlite::Connection::open(self.path()).unwrap();
                connection.execute_batch(sqlite).unwrap();
            }
            Self::Server(database) => {
                let client = database.client().await;
                client.batch_execute(postgres).await.unwrap();
            }
        }
    }
}

/// What a relay of the tests can be started on.
pub(crate) trait Located {
    /// The URL for `--database`.
    fn located(&self) -> String;
}

impl Located for Home {
    fn located(&self) -> String {
        self.url()
    }
}

impl Located for Database {
    fn located(&self) -> String {
        self.url()
    }
}

async fn emit(store: &impl Keys, kind: &str, count: usize) {
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    for number in 1..=count {
        let event = NewEvent::json(kind, &json!({ "n": number }));
        tx.emit(event.about("order", format!("o{number}"))).unwrap();
    }
    tx.commit().await.unwrap();
}
