//! Tail cache: the newest events of the outbox, read once for all destinations that keep up.
//!
//! Destinations that keep up read the same events within moments of each other: the first one reads
//! them from the store, and the others receive the same `Arc`s. A destination that lags reads by
//! itself and does not delay the others.

use std::collections::VecDeque;

use tokio::{sync::Mutex, time::Instant};

use crate::{
    delivery::{Frontier, Shards},
    key::Tenant,
    limits::{POLL_BUSY, READ_EVENTS, TAIL_BATCHES},
    store::{Batch, Past, Source, StoreError},
};

#[derive(Debug)]
pub(super) struct TailCache<S> {
    source: S,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    batches: VecDeque<CachedRead>,
    /// The last read that found no events.
    vain: Option<Vain>,
}

/// A read that found no events.
#[derive(Debug)]
struct Vain {
    at: Instant,
    /// The generation of the lookout when it began.
    generation: u64,
    known: CachedRead,
}

#[derive(Debug)]
struct CachedRead {
    before: Frontier,
    shards: Shards,
    batch: Batch,
}

impl CachedRead {
    fn is_of(&self, from: &Frontier, shards: Shards) -> bool {
        self.shards == shards && self.before == *from
    }
}

impl<S: Source> TailCache<S> {
    pub(super) fn new(source: S) -> Self {
        Self {
            source,
            recent: Mutex::default(),
        }
    }

    /// Reads the events of `shards` after `from`. The batch is empty if there are none now.
    ///
    /// `hint` says that events were committed a moment ago. A read that began in another
    /// `generation` of the lookout is not returned, because it may have seen less.
    pub(super) async fn read(
        &self,
        from: &Frontier,
        shards: Shards,
        hint: bool,
        generation: u64,
    ) -> Result<Batch, StoreError> {
        let mut recent = self.recent.lock().await;
        if let Some(known) = recent
            .batches
            .iter()
            .find(|known| known.is_of(from, shards))
        {
            return Ok(known.batch.clone());
        }
        if let Some(vain) = &recent.vain
            && !hint
            && vain.at.elapsed() < POLL_BUSY
            && vain.generation == generation
            && vain.known.is_of(from, shards)
        {
            return Ok(vain.known.batch.clone());
        }
        let newest = recent.batches.iter().rfind(|known| known.shards == shards);
        let at_head = newest.is_none_or(|known| known.batch.frontier.high <= from.high);
        if !at_head || !shards.is_all() {
            drop(recent);
            return self.source.read(from, shards, READ_EVENTS).await;
        }
        // The lock is held on purpose: destinations that read at the same time receive this batch.
        let batch = self.source.read(from, shards, READ_EVENTS).await;
        if batch.is_err() {
            // The batches may belong to a history that the source has lost.
            *recent = Recent::default();
        }
        let batch = batch?;
        let known = CachedRead {
            before: from.clone(),
            shards,
            batch: batch.clone(),
        };
        if batch.events.is_empty() {
            recent.vain = Some(Vain {
                at: Instant::now(),
                generation,
                known,
            });
        } else {
            if recent.batches.len() == TAIL_BATCHES {
                recent.batches.pop_front();
            }
            recent.batches.push_back(known);
        }
        Ok(batch)
    }

    /// Removes all batches, because they may belong to a history that the source has lost.
    pub(super) async fn forget(&self) {
        *self.recent.lock().await = Recent::default();
    }

    /// Reads ahead for other tenants while a few tenants fill the window.
    pub(super) async fn read_past(
        &self,
        head: &Frontier,
        beyond: i64,
        shards: Shards,
        except: &[Option<Tenant>],
        limit: usize,
    ) -> Result<Past, StoreError> {
        let past = self.source.read_past(head, beyond, shards, except, limit);
        past.await
    }
}
