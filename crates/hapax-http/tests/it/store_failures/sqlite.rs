//! The suite on SQLite.

use std::{path::PathBuf, sync::atomic::Ordering};

use hapax::{idempotency::OnStoreError, store::StoreError};
use hapax_sqlite::{Settings, Sqlite, Statement, Tx, rusqlite::Connection};
use hapax_testkit::clock::{ManualClock, seeded_random};
use tempfile::TempDir;

use super::{
    Fault, Fixture, ask, check, check_kept_mistake, check_mistake, check_outside,
    check_unavailable, node,
};

/// A row that needs new pages of the file.
const INSERT: &str = "INSERT INTO effect VALUES (zeroblob(100000))";

const FAULTS: [Fault; 3] = [
    Fault {
        name: "missing-table",
        breaks: "ALTER TABLE hapax_idempotency_key RENAME TO gone",
        repairs: "ALTER TABLE gone RENAME TO hapax_idempotency_key",
        only_claims_fail: true,
    },
    Fault {
        name: "full-disk",
        breaks: "PRAGMA max_page_count = 1",
        repairs: "PRAGMA max_page_count = 1000000",
        only_claims_fail: false,
    },
    READ_ONLY,
];
const READ_ONLY: Fault = Fault {
    name: "read-only",
    breaks: "PRAGMA query_only = on",
    repairs: "",
    only_claims_fail: false,
};

struct File {
    store: Sqlite,
    path: PathBuf,
    _folder: TempDir,
}

impl File {
    async fn fresh() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("test.db");
        let (clock, random) = (ManualClock::new().clock(), seeded_random(1));
        let store = Sqlite::open(Settings::new(path.clone(), clock, random)).unwrap();
        let file = Self {
            store,
            path,
            _folder: folder,
        };
        file.run("CREATE TABLE effect (bytes BLOB NOT NULL)").await;
        file
    }
}

impl Fixture for File {
    type Store = Sqlite;

    async fn store(&self) -> Sqlite {
        self.store.clone()
    }

    async fn run(&self, sql: &'static str) {
        let ran = self.store.write(move |db| db.execute_batch(sql)).await;
        if sql != READ_ONLY.breaks {
            ran.unwrap();
        }
    }

    async fn effects(&self) -> usize {
        let count = "SELECT count(*) FROM effect";
        let counted = self
            .store
            .read(move |db| db.query_row(count, [], |row| row.get(0)));
        let counted: i64 = counted.await.unwrap();
        usize::try_from(counted).unwrap()
    }

    async fn insert(tx: &mut Tx) -> Result<(), StoreError> {
        tx.with(|db| db.execute(INSERT, [])).await.map(drop)
    }

    async fn fail(tx: &mut Tx) -> Result<(), StoreError> {
        let fail = "INSERT INTO effect VALUES (NULL)";
        tx.with(move |db| db.execute(fail, [])).await.map(drop)
    }

    fn statement() -> Statement {
        Statement::new(INSERT, Vec::new())
    }

    fn refused() -> Statement {
        Statement::new("INSERT INTO effect VALUES (NULL)", Vec::new())
    }
}

#[test]
fn a_store_that_cannot_be_used_is_503_or_fails_open() {
    check(File::fresh(), &FAULTS);
}

#[test]
fn a_statement_that_the_database_refuses_is_no_failure_of_the_store() {
    check_mistake(File::fresh());
}

#[test]
fn a_handler_that_cannot_store_a_file_has_a_failure_of_the_store() {
    check_outside(File::fresh());
}

#[tokio::test]
async fn a_plan_that_the_database_refuses_is_kept_where_the_service_says_so() {
    check_kept_mistake(&File::fresh().await).await;
}

#[tokio::test]
async fn a_file_that_another_program_has_locked_for_too_long_is_503() {
    let file = File::fresh().await;
    let other = Connection::open(&file.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for on_store_error in [OnStoreError::Closed, OnStoreError::Open] {
        let (node, runs) = node(&file, on_store_error).await;
        let sent = ask(&node, "/pipelined", "k").await;
        check_unavailable(&sent, "/pipelined", "locked");
        assert!(runs.load(Ordering::SeqCst) <= 1);
    }
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(file.effects().await, 0);
    let (node, _) = node(&file, OnStoreError::Closed).await;
    assert_eq!(
        ask(&node, "/pipelined", "k").await.idempotency(),
        Some("stored")
    );
}
