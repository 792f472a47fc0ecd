//! The lookout: one task that looks for new events on behalf of all polls that wait.

use std::sync::Arc;

use tokio::time::sleep;

use super::{store::PollStore, wait::Waits};
use crate::{
    delivery::Frontier,
    limits::{POLLING_LOOK, POLLING_LOOK_PAUSE, STORE_BACKOFF},
    notify::Subscription,
};

/// Looks for events after `frontier`, and wakes the polls whenever there are some. Ends when no poll
/// waits any more.
pub(super) async fn look_out<S: PollStore>(
    store: S,
    mut commits: Subscription,
    waits: Arc<Waits>,
    mut frontier: Frontier,
) {
    let (_, backoff) = STORE_BACKOFF;
    while waits.goes_on() {
        match store.shards_after(&frontier).await {
            Ok((shards, after)) => {
                let has_moved = !shards.is_empty() || after.high > frontier.high;
                frontier = after;
                if has_moved {
                    waits.wake();
                }
            }
            Err(error) => {
                // The polls get the error from their own read.
                tracing::debug!(error = error.error_chain(), "a look for events failed");
                waits.wake();
                sleep(backoff).await;
            }
        }
        sleep(POLLING_LOOK_PAUSE).await;
        tokio::select! {
            () = commits.notified() => {}
            () = sleep(POLLING_LOOK) => {}
        }
    }
}
