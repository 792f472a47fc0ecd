//! Deletes what nobody can ask for any more, a batch at a time.
//!
//! Expired keys, events that every destination has passed, inbox rows that no sender can repeat,
//! and sagas that ended long ago. Services in other languages have nobody else who does it. A batch that found nothing
//! ends the round; several relays may do it at once.

use hapax::{
    store::{Keys as _, Outbox as _, Sagas as _, StoreError},
    telemetry,
};
use hapax_postgres::Postgres;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{task::JoinHandle, time};

use crate::config::Retention;

/// Deletes what is past its retention, until the task is aborted.
pub(crate) fn spawn(
    store: Postgres,
    retention: Retention,
    metrics: PrometheusHandle,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut rounds = time::interval(retention.every.0);
        rounds.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            metrics.run_upkeep();
            if let Err(error) = purge(&store, &retention).await {
                tracing::warn!(
                    error = error.story(),
                    "cannot delete what is past its retention"
                );
            }
        }
    })
}

async fn purge(store: &Postgres, retention: &Retention) -> Result<(), StoreError> {
    loop {
        let purged = store.purge_keys().await?;
        if purged.is_empty() {
            break;
        }
        for (operation, keys) in purged {
            let operation = operation.as_str().to_owned();
            metrics::counter!(telemetry::IDEMPOTENCY_EXPIRED, "operation" => operation)
                .increment(keys);
        }
    }
    while store
        .purge_events(retention.events.0, retention.inbox.0)
        .await?
        > 0
    {}
    while store.purge_sagas(retention.sagas.0).await? > 0 {}
    Ok(())
}
