//! Retention: deletes expired rows every `retention.every`.
//!
//! These are expired keys, events that every destination has passed, inbox messages that no sender
//! can repeat, and sagas that ended long ago. Services in other languages rely on the relay for
//! this. Several relays may run it at the same time.

use hapax::retention::{self, Ages};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{task::JoinHandle, time};

use crate::{config::Retention, database::RelayStore};

/// Deletes expired rows until the task is aborted.
pub(crate) fn spawn(
    store: &impl RelayStore,
    retention: &Retention,
    metrics: PrometheusHandle,
) -> JoinHandle<()> {
    let ages = Ages {
        events: retention.events.0,
        inbox: retention.inbox.0,
        sagas: retention.sagas.0,
    };
    let kinds = retention::Retention::new()
        .keys(store)
        .events(store, ages)
        .sagas(store, ages);
    let mut rounds = time::interval(retention.every.0);
    rounds.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    tokio::spawn(async move {
        loop {
            rounds.tick().await;
            metrics.run_upkeep();
            while kinds.round().await {
                metrics.run_upkeep();
            }
        }
    })
}
