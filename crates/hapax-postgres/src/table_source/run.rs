//! The loop of a table source: moves rows without a pause while there are some, and polls less and
//! less often while there are none.

use std::{pin::pin, time::Duration};

use hapax::{
    limits::{POLL_IDLE, STORE_BACKOFF},
    retry::Delays,
};
use tokio::time::timeout;

use super::Imported;

/// The first wait after a poll that found no rows.
const POLL_FIRST: Duration = Duration::from_millis(1);

/// The waits between polls that find no rows, and those between failures.
struct Waits {
    idle: Delays,
    failed: Delays,
}

impl Imported {
    /// Moves rows until `stop` is ready; a batch that has begun ends first.
    ///
    /// Each batch sends a notification, so that a relay in this process reads at once. A failure
    /// is logged and tried again, less and less often.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut waits = Waits {
            idle: Delays::new((POLL_FIRST, POLL_IDLE)),
            failed: Delays::new(STORE_BACKOFF),
        };
        let mut wait = Duration::ZERO;
        while timeout(wait, &mut stop).await.is_err() {
            wait = self.move_next(&mut waits).await;
        }
    }

    /// Moves one batch. Returns how long to wait before the next one.
    async fn move_next(&self, waits: &mut Waits) -> Duration {
        match self.move_batch().await {
            Ok(moved) if moved.rows + moved.set_aside > 0 => {
                self.store.notifier().notify();
                waits.idle.reset();
                waits.failed.reset();
                Duration::ZERO
            }
            Ok(_) => {
                waits.failed.reset();
                waits.idle.advance()
            }
            Err(error) => {
                let (source, error) = (&self.mover.name, error.error_chain());
                tracing::error!(
                    source,
                    error,
                    "the relay cannot move rows of the table source and will retry"
                );
                waits.failed.advance()
            }
        }
    }
}
