//! Table sources: the conformance suite of sources, and the behaviour that only table sources have.

mod conformance;
mod samples;
mod described;
mod moving;
mod refusals;
mod status;
mod crashes;

use std::sync::Arc;

use hapax::{
    delivery::{Frontier, Shards},
    outbox::OutboxEvent,
    store::Source,
};
use hapax_postgres::{Imported, Moved, TableSource};

use crate::fixture::Fixture;

/// The classic table; tests replace parts of it.
pub(crate) const TOPIC: &str = "CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, payload text,
    published_at timestamptz)";

/// The description of [`TOPIC`].
pub(crate) fn topic() -> TableSource {
    let mut table = TableSource::new("orders", "outbox");
    table.kind = Some("topic".to_owned());
    table
}

/// A database with the table that `ddl` creates, and a source that reads it.
pub(crate) async fn imported(ddl: &str, table: TableSource) -> (Fixture, Imported) {
    let fixture = Fixture::new().await;
    fixture.run(ddl).await;
    let imported = Imported::open(&fixture.store, table).await;
    (
        fixture,
        imported.expect("the description does not fit the table"),
    )
}

pub(crate) async fn move_batch(imported: &Imported) -> Moved {
    imported
        .move_batch()
        .await
        .expect("the batch was not moved")
}

/// Every event in the outbox.
pub(crate) async fn events(fixture: &Fixture) -> Vec<Arc<OutboxEvent>> {
    let (mut all, mut frontier) = (Vec::new(), Frontier::default());
    loop {
        let batch = Source::read(&fixture.store, &frontier, Shards::ALL, 1_000).await;
        let batch = batch.expect("the outbox was not read");
        frontier = batch.frontier;
        if batch.events.is_empty() {
            return all;
        }
        all.extend(batch.events);
    }
}

/// The types of all events in the outbox.
pub(crate) async fn kinds(fixture: &Fixture) -> Vec<String> {
    let events = events(fixture).await;
    events.iter().map(|it| it.event.kind.clone()).collect()
}
