//! The task that reads the key set and publishes it.
//!
//! A read that fails publishes that it has ended, and keeps the keys. After a failure the next read
//! is due after `interval`. A request that wakes the task cannot delay the regular reads, because
//! their time is fixed when the previous read ends.

use std::{sync::Arc, time::Duration};

use hapax::{Clock, telemetry::error_chain};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{
    State,
    read::{ReadError, Source},
    set::KeySet,
};

/// Reads the key set, forever.
pub(super) struct Refresher {
    pub(super) source: Source,
    pub(super) publish: watch::Sender<State>,
    pub(super) wake: Arc<Notify>,
    pub(super) refresh: Duration,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) clock: Clock,
}

impl Refresher {
    pub(super) async fn run(self) {
        let mut next = Instant::now();
        loop {
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.wake.notified() => {
                    // A request that the previous read has served may have left a wake-up.
                    let now = self.clock.now();
                    if !self.publish.borrow().is_due(now, self.interval) {
                        continue;
                    }
                }
            }
            let wait = if self.read().await {
                self.refresh
            } else {
                self.interval.min(self.refresh)
            };
            next = Instant::now() + wait;
        }
    }

    /// Reads once. Returns whether it has succeeded.
    async fn read(&self) -> bool {
        let begun = self.clock.now();
        self.publish.send_modify(|state| {
            state.is_reading = true;
            state.read_at = Some(begun);
        });
        let read = timeout(self.timeout, self.source.read()).await;
        let read = read.unwrap_or(Err(ReadError::Timeout));
        if let Err(error) = &read {
            let error = error_chain(error);
            tracing::warn!(
                error,
                "the keys that verify tokens cannot be read; the last ones stay"
            );
        }
        let is_read = read.is_ok();
        self.publish
            .send_modify(|state| end(state, read, &self.clock));
        is_read
    }
}

fn end(state: &mut State, read: Result<KeySet, ReadError>, clock: &Clock) {
    let now = clock.now();
    state.is_reading = false;
    state.read_at = Some(now);
    state.reads += 1;
    if let Ok(keys) = read {
        state.keys = Some((keys, now));
    }
}
