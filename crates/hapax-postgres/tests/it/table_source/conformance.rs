//! The conformance suite of sources, run against tables of the classic shapes.

use std::sync::Arc;

use hapax_postgres::{
    Imported, Postgres,
    tokio_postgres::{Client, types::ToSql},
};
use hapax_testkit::{
    postgres::Database,
    source::{SourceUnderTest, Written},
};

use super::samples::{AGGREGATE, STATUS, Sample, TOPIC};
use crate::fixture::settings;

const WRITE_TOPIC: &str =
    "INSERT INTO outbox (topic, payload) VALUES ('order.changed', $1::text::json)";
const WRITE_AGGREGATE: &str = "
    INSERT INTO outbox (aggregate_type, aggregate_id, event_type, sequence, payload)
    VALUES ('order', $1::text, 'order.changed', $2::int8, $3::text::json)";
const WRITE_STATUS: &str = "
    INSERT INTO outbox_events (order_id, event_type, payload)
    VALUES ($1::text, 'order.changed', $2::text::json)";

/// A table and its source; `SAMPLE` selects the sample.
struct Existing<const SAMPLE: u8> {
    database: Arc<Database>,
    imported: Imported,
}

const fn sample(number: u8) -> Sample {
    match number {
        0 => TOPIC,
        1 => AGGREGATE,
        _ => STATUS,
    }
}

impl<const SAMPLE: u8> Existing<SAMPLE> {
    async fn open(database: &Database) -> Imported {
        let store = Postgres::open(settings(&database.url())).await;
        let table = sample(SAMPLE).table();
        let imported = Imported::open(&store.expect("the store does not open"), table).await;
        imported.expect("the sample does not fit its table")
    }
}

impl<const SAMPLE: u8> SourceUnderTest for Existing<SAMPLE> {
    type Source = Imported;
    type Writer = Client;
    const WRITES_AT_ONCE: bool = true;
    const HAS_AGGREGATES: bool = SAMPLE > 0;

    async fn fresh() -> Self {
        let database = Arc::new(Database::empty().await);
        // The suite compares payloads byte for byte, which `json` preserves and `jsonb` does not.
        let ddl = sample(SAMPLE)
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
        let Written { key, number, .. } = event;
        let payload = event.payload();
        let wrote = match SAMPLE {
            0 => writer.execute(WRITE_TOPIC, &[&payload]).await,
            1 => {
                let params: [&(dyn ToSql + Sync); 3] = [key, number, &payload];
                writer.execute(WRITE_AGGREGATE, &params).await
            }
            _ => writer.execute(WRITE_STATUS, &[key, &payload]).await,
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

type Topic = Existing<0>;
type Aggregate = Existing<1>;
type Status = Existing<2>;

mod topic {
    use super::Topic;
    hapax_testkit::source_suite!(Topic);
}

mod aggregate {
    use super::Aggregate;
    hapax_testkit::source_suite!(Aggregate);
}

mod status {
    use super::Status;
    hapax_testkit::source_suite!(Status);
}
