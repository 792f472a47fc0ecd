//! Deletes what nobody can ask for any more, a batch of each kind in turn.
//!
//! Expired keys go at the pace of their retention; events that every
//! destination has passed, inbox rows that no sender can repeat, and sagas
//! that ended go after days. Files of uploads that were never committed go at
//! the start and once an hour.

use std::time::Duration;

use hapax::{
    retention::{self, Ages},
    seeded::{self, Bug},
};
use hapax_http::Idempotency;
use hapax_sqlite::Sqlite;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::{Instant, sleep};

use crate::{
    database::Database,
    uploads::{self, Folder},
};

/// The longest that what has expired stays; also how often the exporter drops old samples.
const ROUND_MAX: Duration = Duration::from_secs(30);

/// Who has something to delete.
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
    /// Deletes what has expired, until it is dropped.
    pub(crate) async fn keep(self) {
        let retention = self.idempotency.settings().retention;
        let mut round = (retention / 2).clamp(Duration::from_secs(1), ROUND_MAX);
        if seeded::has(Bug::PurgeLiveKey) {
            round = Duration::from_secs(1);
        }
        let kinds = self.kinds();
        let (mut sweep_at, mut count_at) = (Instant::now(), Instant::now());
        loop {
            if Instant::now() >= sweep_at {
                sweep_at += uploads::SWEEP;
                if let Err(error) = uploads::sweep(&self.uploads, &self.store).await {
                    let error = format!("{:#}", anyhow::Error::from(error));
                    tracing::warn!(error, "cannot sweep the folder of uploads");
                }
            }
            if Instant::now() >= count_at {
                count_at = Instant::now() + round;
                if let Err(error) = self.idempotency.count_usage().await {
                    tracing::warn!(
                        error = error.error_chain(),
                        "cannot count what tenants have stored"
                    );
                }
            }
            self.metrics.run_upkeep();
            // Before the first wait: one that never lives for a whole round deletes all the same.
            if !kinds.round().await {
                sleep(round).await;
            }
        }
    }

    /// What is deleted, in the order of its turns.
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
