//! A store in a temporary directory, and the requests that the tests send to it.

use std::{path::PathBuf, process::Command, sync::mpsc, time::Duration};

use bytes::Bytes;
use hapax::{
    event::{Headers, NewEvent},
    idempotency::{Claim, OnExpired, PlannedRequest, StoredResponse},
    key::FingerprintBuilder,
    store::{ClaimOutcome, Keys, StoreError},
};
use hapax_sqlite::{
    Settings, Sqlite, Statement, Tx,
    rusqlite::{self, types::Value},
};
use hapax_testkit::{
    clock::{ManualClock, seeded_random},
    events::scope,
};
use tempfile::TempDir;
use tokio::{sync::oneshot, task::JoinHandle};

pub(crate) const NOTES: &str = "CREATE TABLE note (text TEXT NOT NULL UNIQUE)";
pub(crate) const INSERT: &str = "INSERT INTO note (text) VALUES (?1)";

pub(crate) struct Fixture {
    pub(crate) store: Sqlite,
    pub(crate) clock: ManualClock,
    pub(crate) directory: TempDir,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(adjust: impl FnOnce(&mut Settings)) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be created");
        let clock = ManualClock::new();
        let mut settings = settings(directory.path().join("test.db"), &clock);
        adjust(&mut settings);
        let store = Sqlite::open(settings).expect("the store opens");
        store
            .migrate("test", &[(1, "note", NOTES)])
            .await
            .expect("the table is created");
        Self {
            store,
            clock,
            directory,
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("test.db")
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings_at(self.path())
    }

    /// The settings of a store in another file.
    pub(crate) fn settings_at(&self, path: PathBuf) -> Settings {
        settings(path, &self.clock)
    }

    /// Blocks the writer, so that all requests until it continues wait together.
    pub(crate) async fn hold(&self) -> Held {
        let (let_go, waits) = mpsc::channel::<()>();
        let (begin, holds) = oneshot::channel();
        let store = self.store.clone();
        let hold = move |_: &rusqlite::Connection| {
            let _heard = begin.send(());
            let _let_go = waits.recv();
            Ok(())
        };
        let task = tokio::spawn(async move { store.write(hold).await });
        holds.await.expect("the writer is blocked");
        Held { let_go, task }
    }

    /// Waits until `count` writes are queued.
    pub(crate) async fn queued(&self, count: usize) {
        while self.store.queued() < count {
            tokio::task::yield_now().await;
        }
    }

    /// Writes a note, which must succeed.
    pub(crate) async fn insert(&self, text: &'static str) {
        let insert = move |conn: &rusqlite::Connection| conn.execute(INSERT, [text]);
        self.store.write(insert).await.unwrap();
    }

    pub(crate) async fn notes(&self) -> Vec<String> {
        notes(&self.store).await
    }

    pub(crate) async fn claim(&self, key: &str) -> Tx {
        match self
            .store
            .claim(claim(key))
            .await
            .expect("the claim returns")
        {
            ClaimOutcome::Open(tx) => tx,
            ClaimOutcome::Taken(taken) => panic!("the key should be free, not {taken:?}"),
        }
    }
}

/// A blocked writer, which continues after [`Held::let_go`].
pub(crate) struct Held {
    let_go: mpsc::Sender<()>,
    task: JoinHandle<Result<(), StoreError>>,
}

impl Held {
    pub(crate) async fn let_go(self) {
        drop(self.let_go);
        // The blocking job may share its commit, and so its failure, with the jobs that waited.
        let _shared = self.task.await.unwrap();
    }
}

pub(crate) fn settings(path: PathBuf, clock: &ManualClock) -> Settings {
    Settings::new(path, clock.clock(), seeded_random(1))
}

pub(crate) async fn notes(store: &Sqlite) -> Vec<String> {
    let read = |conn: &rusqlite::Connection| {
        let mut notes = conn.prepare("SELECT text FROM note ORDER BY text")?;
        notes.query_map([], |row| row.get(0))?.collect()
    };
    store.read(read).await.expect("the notes are read")
}

pub(crate) fn claim(key: &str) -> Claim {
    Claim {
        scope: scope("alice", "POST /notes", key),
        fingerprint: FingerprintBuilder::new(1).part(key.as_bytes()).finish(),
        retention: Duration::from_hours(24),
        on_expired: OnExpired::New,
        context: Headers::new(),
    }
}

pub(crate) fn plan(key: &str) -> PlannedRequest<Statement> {
    PlannedRequest {
        claim: claim(key),
        statements: vec![Statement::new(INSERT, [Value::Text(key.to_owned())])],
        events: vec![NewEvent::json("note.written", &key)],
        response: response(),
        deadline: None,
    }
}

pub(crate) fn response() -> StoredResponse {
    StoredResponse {
        status: 201,
        headers: vec![("etag".to_owned(), Bytes::from_static(b"\"1\""))],
        body: Bytes::from_static(b"{}"),
    }
}

pub(crate) async fn note(tx: &mut Tx, text: &'static str) {
    tx.with(move |conn| conn.execute(INSERT, [text]))
        .await
        .expect("a note is written");
}

/// The value of a variable with which a test starts itself.
#[expect(
    clippy::disallowed_methods,
    reason = "the variable is set for this process alone"
)]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A command that runs one test of this program.
pub(crate) fn this_test(name: &str) -> Command {
    let program = std::env::current_exe().expect("the test knows its executable");
    let mut command = Command::new(program);
    command.args(["--exact", name, "--nocapture"]);
    command
}
