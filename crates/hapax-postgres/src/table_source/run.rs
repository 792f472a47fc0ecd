//! Moving on and on: at once while there is something, and looking again ever more rarely.

use std::{pin::pin, time::Duration};

use hapax::limits::{POLL_IDLE, STORE_BACKOFF};
use tokio::time::timeout;

use super::Imported;

/// How soon it looks again after it found nothing for the first time.
const SOON: Duration = Duration::from_millis(1);

impl Imported {
    /// Moves rows until `stop` is ready; a batch that has begun ends first.
    ///
    /// Each batch sends a notification, so that a relay in this process reads at once. A failure
    /// is logged and tried again, less and less often.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut wait = Duration::ZERO;
        while timeout(wait, &mut stop).await.is_err() {
            wait = self.turn(wait).await;
        }
    }

    /// Moves one batch; how long to wait before the next.
    async fn turn(&self, waited: Duration) -> Duration {
        match self.move_batch().await {
            Ok(moved) if moved.rows + moved.set_aside > 0 => {
                self.store.notifier().notify();
                Duration::ZERO
            }
            Ok(_) => (waited * 2).clamp(SOON, POLL_IDLE),
            Err(error) => {
                let (source, error) = (&self.mover.name, error.error_chain());
                tracing::error!(source, error, "no rows were moved; trying again");
                let (first, most) = STORE_BACKOFF;
                (waited * 2).clamp(first, most)
            }
        }
    }
}
