//! Blocked order keys: keys with an unfinished delivery.
//!
//! While there are few, all of them are in memory, and the store is not asked. If there are more
//! than [`BLOCKED_KEYS`], only those that the store does not know yet are kept in memory, and the
//! store is asked about the keys of each batch that is read. It is asked in the iteration in which
//! the batch is admitted, so that no outcome is recorded between its response and the use of it.

use std::collections::HashSet;

use tokio::time::Instant;

use crate::{
    delivery::Settlement,
    limits::{BLOCKED_KEYS, BLOCKED_LOOK},
    store::{Batch, Deliveries, StoreError},
};

use super::delivery_queue::DeliveryQueue;

/// The blocked keys that are in memory.
#[derive(Debug)]
pub(super) struct Blocked {
    keys: HashSet<String>,
    /// Whether `keys` contains all blocked keys.
    is_all: bool,
    /// When to check whether all of them fit into memory again.
    look_at: Instant,
}

impl Blocked {
    /// Creates the set from the blocked keys that the store returned when the partition was opened.
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

    /// If there are too many keys, keeps only those that the store does not know yet.
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
    /// The keys of a batch for which only the store knows whether they are blocked.
    pub(super) fn asks_about(&self, batch: &Batch) -> Vec<String> {
        if self.blocked.is_all {
            return Vec::new();
        }
        let events = batch.events.iter();
        let keys = events.filter_map(|event| self.order_key(&event.event));
        let keys: HashSet<String> = keys.filter(|key| !self.blocked.has(key)).collect();
        keys.into_iter().collect()
    }

    /// Asks the store which keys of a batch are blocked, if that is not known. No outcome may be
    /// recorded before the batch is admitted.
    pub(super) async fn ask(
        &mut self,
        store: &impl Deliveries,
        batch: &Batch,
    ) -> Result<(), StoreError> {
        if self.asks_about(batch).is_empty() {
            return Ok(());
        }
        if self.blocked.look_at <= Instant::now() {
            let keys = store
                .blocked_keys(&self.partition, BLOCKED_KEYS + 1)
                .await?;
            if keys.len() <= BLOCKED_KEYS / 2 {
                self.blocked = Blocked::new(keys);
                let unrecorded = unrecorded_keys(self.sent.as_ref(), &self.pending);
                self.blocked.keys.extend(unrecorded);
                return Ok(());
            }
            self.blocked.look_at = Instant::now() + BLOCKED_LOOK;
        }
        let keys = self.asks_about(batch);
        let blocked = store.blocked(&self.partition, &keys).await?;
        self.blocked.keys.extend(blocked);
        Ok(())
    }
}

/// The order keys of parked deliveries that are not known to be recorded.
pub(super) fn unrecorded_keys<'a>(
    sent: Option<&'a Settlement>,
    pending: &'a Settlement,
) -> impl Iterator<Item = String> + 'a {
    let unrecorded = sent.into_iter().chain([pending]);
    let parks = unrecorded.flat_map(|unrecorded| &unrecorded.park);
    parks.filter_map(|park| park.order_key.clone())
}
