//! Seeded bugs of this store: events that are written in a separate transaction.
//!
//! Only test builds with a seeded bug call these functions with events.

use hapax::outbox::Sealed;

use crate::{emit::Columns, postgres::Postgres, query};

/// Appends events in a separate transaction. If it fails, the events are lost.
pub(crate) async fn emit_apart(store: &Postgres, events: &[Sealed]) {
    if events.is_empty() {
        return;
    }
    let columns = Columns::of(&events.iter().collect::<Vec<_>>());
    match store.commit(query!("outbox/emit"), &columns.params()).await {
        Ok(_) => store.notifier().notify(),
        Err(error) => tracing::warn!(error = error.error_chain(), "events were not written"),
    }
}

/// Appends events at once, whether or not the transaction that emits them commits.
pub(crate) fn publish(store: &Postgres, events: Vec<Sealed>) {
    let store = store.clone();
    tokio::spawn(async move { emit_apart(&store, &events).await });
}
