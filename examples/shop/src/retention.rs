//! Deletes rows and files whose retention is over, a batch of each kind in turn.
//!
//! Expired keys are deleted in rounds of half their retention, but at most 30 s apart. Events that
//! all destinations have settled, inbox rows that no sender can repeat, and sagas that ended are
//! deleted after days. Files of uploads that were never committed are deleted at start and once an
//! hour.

use std::time::Duration;

use hapax::retention::{self, Ages};
use hapax_http::Idempotency;
use hapax_sqlite::Sqlite;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::{Instant, sleep};

use crate::{
    database::Database,
    uploads::{self, Folder},
};

/// The longest time between two rounds; each round also lets the exporter drop old samples.
const ROUND_MAX: Duration = Duration::from_secs(30);

/// The parts of the shop that have something to delete.
#[derive(Debug)]
pub(crate) struct Retention<D: Database> {
    pub(crate) idempotency: Idempotency<D>,
    pub(crate) store: D,
    pub(crate) uploads: Folder,
    /// The inbox of the demo's receiver.
    pub(crate) receiver: Option<Sqlite>,
    pub(crate) metrics: PrometheusHandle,
}

impl<D: Database> Retention<D> {
    /// Deletes expired rows and files until the future is dropped.
    pub(crate) async fn keep(self) {
        let retention = self.idempotency.settings().retention;
        let round = (retention / 2).clamp(Duration::from_secs(1), ROUND_MAX);
        let kinds = self.kinds();
        let (mut sweep_at, mut count_at) = (Instant::now(), Instant::now());
        loop {
            if Instant::now() >= sweep_at {
                sweep_at += uploads::SWEEP;
                if let Err(error) = uploads::sweep(&self.uploads, &self.store).await {
                    let error = format!("{:#}", anyhow::Error::from(error));
                    tracing::warn!(error, "cannot delete old files from the upload folder");
                }
            }
            if Instant::now() >= count_at {
                count_at = Instant::now() + round;
                if let Err(error) = self.idempotency.count_usage().await {
                    tracing::warn!(
                        error = error.error_chain(),
                        "cannot count the stored keys and bytes of tenants"
                    );
                }
            }
            self.metrics.run_upkeep();
            // The first round runs before the first wait, so that a process that never lives for a
            // whole round still deletes something.
            if !kinds.round().await {
                sleep(round).await;
            }
        }
    }

    /// Returns the kinds of rows that are deleted, in the order of their turns.
    fn kinds(&self) -> retention::Retention {
        let (idempotency, ages) = (self.idempotency.clone(), Ages::default());
        let kinds = retention::Retention::new()
            .and("keys", move || {
                let idempotency = idempotency.clone();
                async move { idempotency.purge().await }
            })
            .events(&self.store, ages)
            .sagas(&self.store, ages);
        match &self.receiver {
            Some(receiver) => kinds.events(receiver, ages),
            None => kinds,
        }
    }
}
