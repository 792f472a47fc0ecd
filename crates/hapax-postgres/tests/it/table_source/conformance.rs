//! The conformance suite of sources, run against tables of both classic shapes.

use std::sync::Arc;

use hapax_postgres::{Imported, Postgres, tokio_postgres::Client};
use hapax_testkit::{
    postgres::Database,
    source::{SourceUnderTest, Written},
};

use super::samples::{AGGREGATE, Sample, TOPIC};
use crate::fixture::settings;

const WRITE_TOPIC: &str =
    "INSERT INTO outbox (topic, payload) VALUES ('order.changed', $1::text::json)";
const WRITE_AGGREGATE: &str = "
    INSERT INTO outbox (aggregate_type, aggregate_id, event_type, sequence, payload)
    VALUES ('order', $1::text, 'order.changed', $2::int8, $3::text::json)";

/// A table and its source; `AGGREGATES` selects the sample.
struct Existing<const AGGREGATES: bool> {
    database: Arc<Database>,
    imported: Imported,
}

const fn sample(aggregates: bool) -> Sample {
    if aggregates { AGGREGATE } else { TOPIC }
}

impl<const AGGREGATES: bool> Existing<AGGREGATES> {
    async fn open(database: &Database) -> Imported {
        let store = Postgres::open(settings(&database.url())).await;
        let table = sample(AGGREGATES).table();
        let imported = Imported::open(&store.expect("the store does not open"), table).await;
        imported.expect("the sample does not fit its table")
    }
}

impl<const AGGREGATES: bool> SourceUnderTest for Existing<AGGREGATES> {
    type Source = Imported;
    type Writer = Client;
    const WRITES_AT_ONCE: bool = true;
    const HAS_AGGREGATES: bool = AGGREGATES;

    async fn fresh() -> Self {
        let database = Arc::new(Database::empty().await);
        // The suite compares payloads byte for byte, which `json` preserves and `jsonb` does not.
        let ddl = sample(AGGREGATES)
            .ddl()
            .replace("payload        jsonb", "payload json");
        let ddl = ddl.replace("payload      jsonb", "payload json");
        let made = database.client().await.batch_execute(&ddl).await;
        made.expect("the table was not created");
        let imported = Self::open(&database).await;
        assert!(imported.is_served(), "{}", imported.index());
        Self { database, imported }
    }

    async fn reopen(self) -> Self {
        let database = self.database;
        let imported = Self::open(&database).await;
        Self { database, imported }
    }

    fn source(&self) -> &Imported {
        &self.imported
    }

    async fn beside(&self) -> Imported {
        Self::open(&self.database).await
    }

    async fn begin(&self) -> Client {
        let client = self.database.client().await;
        client
            .batch_execute("BEGIN")
            .await
            .expect("the transaction did not begin");
        client
    }

    async fn write(writer: &mut Client, event: &Written) {
        let wrote = if AGGREGATES {
            let Written { key, number, .. } = event;
            let payload = event.payload();
            writer
                .execute(WRITE_AGGREGATE, &[key, number, &payload])
                .await
        } else {
            writer.execute(WRITE_TOPIC, &[&event.payload()]).await
        };
        wrote.expect("the row was not written");
    }

    async fn commit(writer: Client) {
        writer
            .batch_execute("COMMIT")
            .await
            .expect("the commit failed");
    }

    async fn roll_back(writer: Client) {
        writer
            .batch_execute("ROLLBACK")
            .await
            .expect("the rollback failed");
    }
}

type Topic = Existing<false>;
type Aggregate = Existing<true>;

mod topic {
    use super::Topic;
    hapax_testkit::source_suite!(Topic);
}

mod aggregate {
    use super::Aggregate;
    hapax_testkit::source_suite!(Aggregate);
}
