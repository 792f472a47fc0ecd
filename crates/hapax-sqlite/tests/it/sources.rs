//! Runs the conformance suite of sources on the outbox of the SQLite store.

use std::sync::Arc;

use hapax::{
    event::{Headers, NewEvent, Payload},
    store::{Keys, Transaction},
};
use hapax_sqlite::{Sqlite, Tx};
use hapax_testkit::{
    clock::ManualClock,
    source::{SourceUnderTest, Written},
};
use tempfile::TempDir;

use crate::fixture::settings;

struct Own {
    directory: Arc<TempDir>,
    clock: ManualClock,
    store: Sqlite,
}

impl Own {
    fn on(directory: Arc<TempDir>, clock: ManualClock) -> Self {
        let store = Sqlite::open(settings(directory.path().join("law.db"), &clock));
        let store = store.expect("the store opens");
        Self {
            directory,
            clock,
            store,
        }
    }
}

impl SourceUnderTest for Own {
    type Source = Sqlite;
    type Writer = Tx;
    /// There is one writer, so the second transaction waits for the first.
    const WRITES_AT_ONCE: bool = false;
    const HAS_AGGREGATES: bool = true;

    async fn fresh() -> Self {
        let directory = tempfile::tempdir().expect("a directory can be created");
        Self::on(Arc::new(directory), ManualClock::new())
    }

    async fn reopen(self) -> Self {
        self.store.close().await.expect("the store closes");
        Self::on(self.directory, self.clock)
    }

    fn source(&self) -> &Sqlite {
        &self.store
    }

    /// Only one process may open the file, so another reader is another handle.
    async fn beside(&self) -> Sqlite {
        self.store.clone()
    }

    async fn begin(&self) -> Tx {
        let begun = self.store.begin(None, Headers::new()).await;
        begun.expect("a transaction opens")
    }

    async fn write(writer: &mut Tx, event: &Written) {
        let stated = NewEvent::new("order.changed", Payload::Json(event.payload()))
            .about("order", &event.key)
            .sequence(event.number);
        writer.emit(stated).expect("an event is emitted");
    }

    async fn commit(writer: Tx) {
        writer.commit().await.expect("the transaction commits");
    }

    async fn roll_back(writer: Tx) {
        writer.rollback().await;
    }
}

hapax_testkit::source_suite!(Own);
