//! Deletes what nobody can ask for any more, a batch at a time.
//!
//! Expired keys go at the pace of their retention; events that every
//! destination has passed, and inbox rows that no sender can repeat, go after
//! days. A batch that found nothing ends the round.

use std::time::Duration;

use hapax::{
    limits::{EVENT_RETENTION, INBOX_RETENTION},
    store::{Outbox as _, StoreError},
};
use hapax_http::Idempotency;
use hapax_sqlite::Sqlite;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::sleep;

/// The longest that what has expired stays; also how often the exporter drops old samples.
const ROUND_MAX: Duration = Duration::from_secs(30);

/// Who has something to delete.
#[derive(Debug)]
pub(crate) struct Retention {
    pub(crate) idempotency: Idempotency<Sqlite>,
    /// Every store with an outbox or an inbox.
    pub(crate) stores: Vec<Sqlite>,
    pub(crate) metrics: PrometheusHandle,
}

impl Retention {
    /// Deletes what has expired, until it is dropped.
    pub(crate) async fn keep(self) {
        let retention = self.idempotency.settings().retention;
        let round = (retention / 2).clamp(Duration::from_secs(1), ROUND_MAX);
        loop {
            sleep(round).await;
            self.metrics.run_upkeep();
            if let Err(error) = self.purge().await {
                tracing::warn!(error = error.story(), "cannot delete what has expired");
            }
        }
    }

    async fn purge(&self) -> Result<(), StoreError> {
        while self.idempotency.purge().await? > 0 {}
        for store in &self.stores {
            while store.purge_events(EVENT_RETENTION, INBOX_RETENTION).await? > 0 {}
        }
        Ok(())
    }
}
