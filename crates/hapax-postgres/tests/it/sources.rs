//! The conformance suite of sources, run against the store's own outbox.

use std::sync::Arc;

use hapax::{
    event::{Headers, NewEvent, Payload},
    store::{Keys, Transaction},
};
use hapax_postgres::{Postgres, Tx};
use hapax_testkit::{
    postgres::Database,
    source::{SourceUnderTest, Written},
};

use crate::fixture::settings;

struct Own {
    database: Arc<Database>,
    store: Postgres,
}

impl Own {
    async fn on(database: Arc<Database>) -> Self {
        let store = Postgres::open(settings(&database.url())).await;
        let store = store.expect("the store does not open");
        Self { database, store }
    }
}

impl SourceUnderTest for Own {
    type Source = Postgres;
    type Writer = Tx;
    const WRITES_AT_ONCE: bool = true;
    const HAS_AGGREGATES: bool = true;

    async fn fresh() -> Self {
        Self::on(Arc::new(Database::fresh().await)).await
    }

    async fn reopen(self) -> Self {
        self.store.close();
        Self::on(self.database).await
    }

    fn source(&self) -> &Postgres {
        &self.store
    }

    async fn beside(&self) -> Postgres {
        Self::on(Arc::clone(&self.database)).await.store
    }

    async fn begin(&self) -> Tx {
        let begun = self.store.begin(None, Headers::new()).await;
        begun.expect("the transaction did not begin")
    }

    async fn write(writer: &mut Tx, event: &Written) {
        // The insert is executed here, so that an open transaction has drawn its position before it
        // commits.
        writer
            .execute("SELECT pg_current_xact_id()", &[])
            .await
            .expect("the transaction has no number");
        let stated = NewEvent::new("order.changed", Payload::Json(event.payload()))
            .about("order", &event.key)
            .sequence(event.number);
        writer.emit(stated).expect("the event was not emitted");
    }

    async fn commit(writer: Tx) {
        writer.commit().await.expect("the commit failed");
    }

    async fn roll_back(writer: Tx) {
        writer.rollback().await;
    }
}

hapax_testkit::source_suite!(Own);
