//! Runs the conformance suites on the store.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::sync::Mutex;

use custom_store::{Database, InsertRow, Memory, Tables, Tx};
use hapax::{
    Clock, Random,
    event::{Headers, NewEvent, Payload},
    store::{Keys as _, Transaction as _},
};
use hapax_testkit::{
    clock::{ManualClock, seeded_random},
    source::{SourceUnderTest, Written},
    source_suite,
    store::{Images, StoreUnderTest},
    store_suite,
};

store_suite!(Server, core);
source_suite!(Outbox);

/// A database and a store that uses it.
struct Server {
    database: Database,
    image: Mutex<Option<Tables>>,
    clock: Clock,
    random: Random,
    store: Memory,
}

impl Server {
    fn start(database: Database, clock: Clock, random: Random) -> Self {
        let store = Memory::open(database.clone(), clock.clone(), random.clone());
        Self {
            database,
            image: Mutex::default(),
            clock,
            random,
            store,
        }
    }
}

impl StoreUnderTest for Server {
    type Store = Memory;

    async fn fresh(clock: Clock, random: Random) -> Self {
        Self::start(Database::new().unwrap(), clock, random)
    }

    async fn reopen(self) -> Self {
        Self::start(self.database, self.clock, self.random)
    }

    fn store(&self) -> &Memory {
        &self.store
    }

    async fn write_row(tx: &mut Tx, value: &str) {
        tx.insert(Self::row_statement(value)).unwrap();
    }

    fn row_statement(value: &str) -> InsertRow {
        InsertRow(value.to_owned())
    }

    fn failing_statement() -> InsertRow {
        InsertRow(String::new())
    }

    async fn rows(&self) -> Vec<String> {
        self.store.rows()
    }
}

impl Images for Server {
    async fn keep_image(&self) {
        *self.image.lock().unwrap() = Some(self.database.backup());
    }

    async fn set_back(&self) {
        let image = self.image.lock().unwrap().take();
        self.database.restore(image.unwrap());
    }
}

/// The outbox, as a source.
struct Outbox(Server);

impl SourceUnderTest for Outbox {
    type Source = Memory;
    type Writer = Tx;
    /// The database has one writer, so a second transaction waits for the first.
    const WRITES_AT_ONCE: bool = false;
    const HAS_AGGREGATES: bool = true;

    async fn fresh() -> Self {
        Self(Server::fresh(ManualClock::new().clock(), seeded_random(1)).await)
    }

    async fn reopen(self) -> Self {
        Self(self.0.reopen().await)
    }

    fn source(&self) -> &Memory {
        &self.0.store
    }

    async fn beside(&self) -> Memory {
        let Server {
            database,
            clock,
            random,
            ..
        } = &self.0;
        Memory::open(database.clone(), clock.clone(), random.clone())
    }

    async fn begin(&self) -> Tx {
        self.0.store.begin(None, Headers::new()).await.unwrap()
    }

    async fn write(writer: &mut Tx, event: &Written) {
        let stated = NewEvent::new("order.changed", Payload::Json(event.payload()))
            .about("order", &event.key)
            .sequence(event.number);
        writer.emit(stated).unwrap();
    }

    async fn commit(writer: Tx) {
        writer.commit().await.unwrap();
    }

    async fn roll_back(writer: Tx) {
        writer.rollback().await;
    }
}
