//! Fixture: a fresh store, a clock that advances only when a test advances it, and relays that use
//! them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hapax::{
    Timestamp,
    event::{Headers, NewEvent},
    limits::EVENTS_PER_TRANSACTION_MAX,
    relay::{Destination, Relay, RelayHandle, Settings},
    store::{DeadLetters, Keys, Settlements, Transaction},
};
use hapax_sqlite::{Sqlite, SqliteAdmin, rusqlite::Connection};
use hapax_testkit::{
    clock::{ManualClock, seeded_random},
    wait::eventually,
};
use tempfile::TempDir;

use crate::recorder::Recorder;

const FILE: &str = "hapax.db";
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Stage {
    pub(crate) store: Sqlite,
    pub(crate) clock: ManualClock,
    directory: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let clock = ManualClock::new();
        let path = directory.path().join(FILE);
        let settings = hapax_sqlite::Settings::new(path, clock.clock(), seeded_random(1));
        let store = Sqlite::open(settings).unwrap();
        Self {
            store,
            clock,
            directory,
        }
    }

    /// Commits events of aggregates with these ids, each in a separate transaction.
    pub(crate) async fn emit(&self, aggregates: &[&str]) {
        for aggregate in aggregates {
            self.emit_event(NewEvent::json("order.created", aggregate).about("order", *aggregate))
                .await;
        }
    }

    /// Commits `count` events of `keys` aggregates in turn, in few transactions.
    pub(crate) async fn emit_many(&self, count: usize, keys: usize) {
        let mut numbers = 0..count;
        while !numbers.is_empty() {
            let mut tx = self.store.begin(None, Headers::new()).await.unwrap();
            for number in numbers.by_ref().take(EVENTS_PER_TRANSACTION_MAX) {
                let key = format!("k{}", number % keys);
                tx.emit(NewEvent::json("order.created", &number).about("order", key))
                    .unwrap();
            }
            tx.commit().await.unwrap();
        }
    }

    pub(crate) async fn emit_event(&self, event: NewEvent) {
        let mut tx = self.store.begin(None, Headers::new()).await.unwrap();
        tx.emit(event).unwrap();
        tx.commit().await.unwrap();
    }

    pub(crate) fn destination(name: &str, sink: &Recorder) -> Destination {
        Destination::new(name, Arc::new(sink.clone())).schedule("0s,1s,1s".parse().unwrap())
    }

    pub(crate) fn relay(&self, destinations: Vec<Destination>) -> RelayHandle {
        let settings = Settings::new(self.clock.clock(), seeded_random(2));
        Relay::spawn(&self.store, destinations, &settings, &self.store.notifier())
    }

    /// Advances the clock, so that scheduled retries are due, until `condition` is true.
    pub(crate) async fn as_time_passes(&self, mut condition: impl FnMut() -> bool) {
        eventually(PATIENCE, async || {
            self.clock.advance(Duration::from_millis(100));
            condition()
        })
        .await;
    }

    pub(crate) async fn dead(&self, destination: &str) -> Vec<(i64, u32)> {
        let dead = self.store.dead_letters(destination, 0, 100).await.unwrap();
        dead.iter()
            .map(|letter| (letter.event.position, letter.attempts))
            .collect()
    }

    pub(crate) async fn backlog(&self, destination: &str) -> u64 {
        self.store.backlog(destination).await.unwrap().events
    }

    /// The number of events in the outbox.
    pub(crate) async fn event_count(&self) -> usize {
        const COUNT: &str = "SELECT count(*) FROM hapax_outbox_event";
        let count = |rows: &Connection| rows.query_row(COUNT, [], |row| row.get::<_, i64>(0));
        usize::try_from(self.store.read(count).await.unwrap()).unwrap()
    }

    pub(crate) async fn parked(&self, destination: &str) -> u64 {
        self.store.backlog(destination).await.unwrap().parked
    }

    pub(crate) async fn rename(&self, from: &str, to: &str) {
        self.execute(&format!("ALTER TABLE {from} RENAME TO {to}"))
            .await;
    }

    /// The handle of an operator in another process: it shares nothing with the store in memory.
    pub(crate) fn operator(&self) -> SqliteAdmin {
        let path = self.directory.path().join(FILE);
        let settings = hapax_sqlite::Settings::new(path, self.clock.clock(), seeded_random(3));
        SqliteAdmin::open(settings).unwrap()
    }

    /// A connection of another program to the file.
    pub(crate) fn program(&self) -> Connection {
        Connection::open(self.directory.path().join(FILE)).unwrap()
    }

    /// Copies the store to a file next to it.
    pub(crate) fn image(&self) -> PathBuf {
        let image = self.directory.path().join("image.db");
        let path = image.to_str().unwrap().to_owned();
        let conn = Connection::open(self.directory.path().join(FILE)).unwrap();
        conn.execute("VACUUM INTO ?1", [path]).unwrap();
        image
    }

    /// Replaces the content of the store by a copy, through another connection, as `.restore` does.
    pub(crate) fn set_back(&self, image: &Path) {
        const TABLES: &str =
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'";
        let conn = Connection::open(self.directory.path().join(FILE)).unwrap();
        conn.execute("ATTACH ?1 AS image", [image.to_str().unwrap()])
            .unwrap();
        let mut replace = vec!["PRAGMA foreign_keys = off; BEGIN IMMEDIATE".to_owned()];
        let mut tables = conn.prepare(TABLES).unwrap();
        for name in tables.query_map([], |row| row.get::<_, String>(0)).unwrap() {
            let name = name.unwrap();
            replace.push(format!("DELETE FROM main.{name}"));
            replace.push(format!(
                "INSERT INTO main.{name} SELECT * FROM image.{name}"
            ));
        }
        replace.push("COMMIT".to_owned());
        conn.execute_batch(&replace.join("; ")).unwrap();
        self.store.notifier().notify();
    }

    pub(crate) async fn execute(&self, sql: &str) {
        let sql = sql.to_owned();
        let run = move |rows: &Connection| rows.execute_batch(&sql);
        self.store.write(run).await.unwrap();
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
