//! Reading the outbox once for all who stand at its head.
//!
//! Destinations that keep up ask for the same events within moments of each
//! other: the first reads them, the others get the same `Arc`s. Only one that
//! lags reads by itself, and it makes nobody wait.

use std::collections::VecDeque;

use tokio::sync::Mutex;

use crate::{
    delivery::Frontier,
    limits::{READ_EVENTS, TAIL_BATCHES},
    store::{Batch, Outbox, StoreError},
};

#[derive(Debug)]
pub(super) struct Tail<S> {
    store: S,
    recent: Mutex<VecDeque<(Frontier, Batch)>>,
}

impl<S: Outbox> Tail<S> {
    pub(super) fn new(store: S) -> Self {
        Self {
            store,
            recent: Mutex::new(VecDeque::new()),
        }
    }

    /// The events beyond `from`; none when there are none now.
    pub(super) async fn read(&self, from: &Frontier) -> Result<Batch, StoreError> {
        let mut recent = self.recent.lock().await;
        if let Some((_, batch)) = recent.iter().find(|(before, _)| before == from) {
            return Ok(batch.clone());
        }
        let at_head = recent
            .back()
            .is_none_or(|(_, newest)| newest.frontier.high <= from.high);
        if !at_head {
            drop(recent);
            return self.store.read(from, READ_EVENTS).await;
        }
        // The lock is held on purpose: whoever comes meanwhile gets this batch.
        let batch = self.store.read(from, READ_EVENTS).await?;
        if !batch.events.is_empty() {
            if recent.len() == TAIL_BATCHES {
                recent.pop_front();
            }
            recent.push_back((from.clone(), batch.clone()));
        }
        Ok(batch)
    }
}
