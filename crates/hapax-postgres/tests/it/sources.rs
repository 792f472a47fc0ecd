//! The law of sources, held against the store's own outbox.

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
        let store = store.expect("the store opens");
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
        begun.expect("a transaction opens")
    }

    async fn write(writer: &mut Tx, event: &Written) {
        // The row's statement, so that an open transaction has its place before it commits.
        writer
            .execute("SELECT pg_current_xact_id()", &[])
            .await
            .expect("it has a number");
        let stated = NewEvent::new("order.changed", Payload::Json(event.payload()))
            .about("order", &event.key)
            .sequence(event.number);
        writer.emit(stated).expect("an event is emitted");
    }

    async fn commit(writer: Tx) {
        writer.commit().await.expect("it commits");
    }

    async fn roll_back(writer: Tx) {
        writer.rollback().await;
    }
}

hapax_testkit::source_suite!(Own);
