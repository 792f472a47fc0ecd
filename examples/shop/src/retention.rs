//! Deletes what nobody can ask for any more, a batch at a time.
//!
//! Expired keys go at the pace of their retention; events that every
//! destination has passed, and inbox rows that no sender can repeat, go after
//! days. A batch that found nothing ends the round. Files of uploads that were
//! never committed go at the start and once an hour.

use std::time::Duration;

use hapax::{
    limits::{EVENT_RETENTION, INBOX_RETENTION, SAGA_RETENTION},
    seeded::{self, Bug},
    store::{Outbox, StoreError},
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
        let mut sweep_at = Instant::now();
        loop {
            if Instant::now() >= sweep_at {
                sweep_at += uploads::SWEEP;
                if let Err(error) = uploads::sweep(&self.uploads, &self.store).await {
                    let error = format!("{:#}", anyhow::Error::from(error));
                    tracing::warn!(error, "cannot sweep the folder of uploads");
                }
            }
            if let Err(error) = self.idempotency.count_usage().await {
                tracing::warn!(
                    error = error.story(),
                    "cannot count what tenants have stored"
                );
            }
            self.metrics.run_upkeep();
            // Before the first wait: one that never lives for a whole round deletes all the same.
            if let Err(error) = self.purge().await {
                tracing::warn!(error = error.story(), "cannot delete what has expired");
            }
            sleep(round).await;
        }
    }

    async fn purge(&self) -> Result<(), StoreError> {
        while self.idempotency.purge().await? > 0 {}
        purge_events(&self.store).await?;
        while self.store.purge_sagas(SAGA_RETENTION).await? > 0 {}
        match &self.receiver {
            Some(receiver) => purge_events(receiver).await,
            None => Ok(()),
        }
    }
}

async fn purge_events(store: &impl Outbox) -> Result<(), StoreError> {
    while store.purge_events(EVENT_RETENTION, INBOX_RETENTION).await? > 0 {}
    Ok(())
}
