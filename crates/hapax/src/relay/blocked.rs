//! The order keys that something unfinished stands in the way of.
//!
//! While they are few, all of them are in memory, and nobody is asked. When there are more than
//! [`BLOCKED_KEYS`], only those are kept that the store does not know yet; for each batch that is
//! read, the store is asked about its keys. It is asked in the turn in which the batch is taken in,
//! so that no outcome comes between the answer and its use.

use std::collections::HashSet;

use tokio::time::Instant;

use crate::{
    delivery::Settlement,
    limits::{BLOCKED_KEYS, BLOCKED_LOOK},
    store::{Batch, Deliveries, StoreError},
};

use super::delivery_queue::DeliveryQueue;

/// What is known of blocked keys.
#[derive(Debug)]
pub(super) struct Blocked {
    keys: HashSet<String>,
    /// Whether `keys` are all that there are.
    is_all: bool,
    /// When to look whether all of them fit again.
    look_at: Instant,
}

impl Blocked {
    /// `keys` is what the store said when the part was opened.
    pub(super) fn new(keys: Vec<String>) -> Self {
        let mut blocked = Self {
            keys: keys.into_iter().collect(),
            is_all: true,
            look_at: Instant::now(),
        };
        blocked.keep(std::iter::empty());
        blocked
    }

    /// Whether a key is known to be blocked.
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    pub(super) fn insert(&mut self, key: String) {
        self.keys.insert(key);
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.keys.remove(key);
    }

    /// Where there are too many, keeps only what the store does not know yet.
    pub(super) fn keep(&mut self, unrecorded: impl Iterator<Item = String>) {
        if self.is_all && self.keys.len() > BLOCKED_KEYS {
            self.is_all = false;
            self.look_at = Instant::now() + BLOCKED_LOOK;
        }
        if !self.is_all {
            self.keys = unrecorded.collect();
        }
    }
}

impl DeliveryQueue {
    /// The keys of a batch that only the store can say about whether they are blocked.
    pub(super) fn asks_about(&self, batch: &Batch) -> Vec<String> {
        if self.blocked.is_all {
            return Vec::new();
        }
        let events = batch.events.iter();
        let keys = events.filter_map(|event| self.order_key(&event.event));
        let keys: HashSet<String> = keys.filter(|key| !self.blocked.has(key)).collect();
        keys.into_iter().collect()
    }

    /// Asks the store which keys of a batch are blocked, where it is not known; no outcome may be
    /// noted until the batch is taken in.
    pub(super) async fn ask(
        &mut self,
        store: &impl Deliveries,
        batch: &Batch,
    ) -> Result<(), StoreError> {
        if self.asks_about(batch).is_empty() {
            return Ok(());
        }
        if self.blocked.look_at <= Instant::now() {
            let keys = store.blocked_keys(&self.part, BLOCKED_KEYS + 1).await?;
            if keys.len() <= BLOCKED_KEYS / 2 {
                self.blocked = Blocked::new(keys);
                let unrecorded = unrecorded_keys(self.sent.as_ref(), &self.pending);
                self.blocked.keys.extend(unrecorded);
                return Ok(());
            }
            self.blocked.look_at = Instant::now() + BLOCKED_LOOK;
        }
        let keys = self.asks_about(batch);
        let blocked = store.blocked(&self.part, &keys).await?;
        self.blocked.keys.extend(blocked);
        Ok(())
    }
}

/// The keys of what is parked and not known to be written down.
pub(super) fn unrecorded_keys<'a>(
    sent: Option<&'a Settlement>,
    pending: &'a Settlement,
) -> impl Iterator<Item = String> + 'a {
    let unrecorded = sent.into_iter().chain([pending]);
    let parks = unrecorded.flat_map(|unrecorded| &unrecorded.park);
    parks.filter_map(|park| park.order_key.clone())
}
