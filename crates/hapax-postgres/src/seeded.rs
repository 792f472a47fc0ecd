//! What seeded bugs do here that nothing else does: events in a transaction of their own.

use hapax::outbox::Sealed;

use crate::{emit::Columns, phases::commit, postgres::Postgres, query};

/// Appends events in a transaction of their own; what fails is lost.
pub(crate) async fn emit_apart(store: &Postgres, events: &[Sealed]) {
    if events.is_empty() {
        return;
    }
    let columns = Columns::of(&events.iter().collect::<Vec<_>>());
    match commit(store, query!("outbox/emit"), &columns.params()).await {
        Ok(_) => store.notifier().notify(),
        Err(error) => tracing::warn!(error = error.error_chain(), "events were not written"),
    }
}

/// Appends events at once, whatever becomes of whoever emits them.
pub(crate) fn publish(store: &Postgres, events: Vec<Sealed>) {
    let store = store.clone();
    tokio::spawn(async move { emit_apart(&store, &events).await });
}
