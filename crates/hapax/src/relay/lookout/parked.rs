//! Parked deliveries that another process has changed, or that the clock has made due.
//!
//! A worker knows when its next parked delivery is due, and waits for that. Everything else that
//! makes one due is noticed here, once for all workers.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::sleep;

use crate::{
    limits::{POLL_PARKED, POLL_PARKED_ASLEEP},
    notify::Subscription,
    store::Summaries,
};

use super::{Lookout, locked};

impl Lookout {
    /// Wakes the workers that have a parked delivery which is due.
    pub(super) async fn watch_parked<D: Summaries>(
        &self,
        store: &D,
        mut committed: Subscription,
        idle: Duration,
    ) {
        loop {
            // However often the relay is notified, it asks no more often than this.
            sleep(idle).await;
            let is_asleep = self.is_asleep.load(Ordering::Relaxed);
            let pause = if is_asleep {
                POLL_PARKED_ASLEEP
            } else {
                POLL_PARKED
            };
            tokio::select! {
                () = sleep(pause.saturating_sub(idle)) => {}
                () = committed.notified() => {}
                () = self.woken.notified() => {}
            }
            let partitions: Vec<String> = locked(&self.places).keys().cloned().collect();
            if partitions.is_empty() {
                continue;
            }
            match store.due_of(&partitions).await {
                Ok(due) => self.wake_for_parked(&due),
                Err(error) => {
                    let error = error.error_chain();
                    tracing::debug!(error, "parked deliveries cannot be read");
                }
            }
        }
    }

    fn wake_for_parked(&self, partitions: &[String]) {
        let places = locked(&self.places);
        for place in partitions.iter().filter_map(|name| places.get(name)) {
            place.due.notify_one();
        }
    }
}
