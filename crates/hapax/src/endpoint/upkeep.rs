//! Upkeep: deletes old rows of endpoints, ends deliveries of which too many wait, and closes clients
//! that are idle.
//!
//! It runs beside the dispatcher, because the log of attempts grows with each delivery, and deleting
//! as many rows takes longer than a retry may wait.

use std::time::Duration;

use metrics::counter;
use tokio::time::{Instant, sleep};

use super::service::Endpoints;
use crate::{
    limits::{ENDPOINT_PURGE_ROWS, ENDPOINT_UPKEEP, ENDPOINT_UPKEEP_PAUSE, STORE_BACKOFF},
    retry::Delays,
    telemetry,
};

impl Endpoints {
    /// Deletes old rows, ends what is too much and closes what is idle, until it is dropped.
    pub(super) async fn keep_up(&self) {
        let mut backoff = Delays::new(STORE_BACKOFF);
        let mut drop_at = Instant::now();
        loop {
            self.transport().sweep();
            if Instant::now() >= drop_at {
                drop_at = Instant::now() + self.drop_excess(&mut backoff).await;
            }
            let pause = self.purge(&mut backoff).await;
            sleep(pause.min(drop_at.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// Ends the oldest deliveries of endpoints for which too many wait, and returns the pause before
    /// they are counted again.
    async fn drop_excess(&self, backoff: &mut Delays) -> Duration {
        let waiting_max = self.settings().waiting_max;
        match self.store().drop_deliveries(waiting_max).await {
            Ok(0) => {
                backoff.reset();
                ENDPOINT_UPKEEP
            }
            Ok(deliveries) => {
                tracing::warn!(
                    deliveries,
                    waiting_max,
                    "deliveries ended: too many waited for their endpoints"
                );
                counter!(telemetry::ENDPOINTS_DROPPED).increment(deliveries);
                ENDPOINT_UPKEEP_PAUSE
            }
            Err(error) => {
                let error = error.error_chain();
                tracing::warn!(error, "deliveries to endpoints cannot be dropped");
                backoff.advance()
            }
        }
    }

    /// Deletes a batch of old rows, and returns the pause before the next one.
    async fn purge(&self, backoff: &mut Delays) -> Duration {
        let (began, retention) = (Instant::now(), self.settings().retention);
        match self.store().purge_endpoints(retention).await {
            Ok(purged) => {
                backoff.reset();
                let is_full = purged >= ENDPOINT_PURGE_ROWS as u64;
                if is_full {
                    began.elapsed()
                } else {
                    ENDPOINT_UPKEEP
                }
            }
            Err(error) => {
                let error = error.error_chain();
                tracing::warn!(error, "rows of endpoints cannot be purged");
                backoff.advance()
            }
        }
    }
}
