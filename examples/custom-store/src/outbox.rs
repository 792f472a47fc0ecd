//! The outbox. Positions are assigned in the commit, so they are in commit order, and a frontier
//! is a position.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Bound,
    time::Duration,
};

use hapax::{
    delivery::{Frontier, SHARDS, Shards},
    event::Event,
    limits::{PURGE_ROWS, READ_BYTES},
    store::{Batch, Outbox, Source, StoreError},
};

use crate::Memory;

impl Source for Memory {
    async fn read(
        &self,
        frontier: &Frontier,
        shards: Shards,
        limit: usize,
    ) -> Result<Batch, StoreError> {
        let mut batch = Batch {
            events: Vec::new(),
            frontier: frontier.clone(),
        };
        let mut bytes = 0;
        let tables = self.tables();
        let after = (Bound::Excluded(frontier.high), Bound::Unbounded);
        for (position, stored) in tables.events.range(after) {
            if batch.events.len() == limit || bytes > READ_BYTES {
                break;
            }
            batch.frontier.high = *position;
            if shards.contains(shard(&stored.event)) {
                bytes += stored.event.stored_bytes();
                batch.events.push(stored.clone());
            }
        }
        Ok(batch)
    }
}

/// The shard of an event. All events of an aggregate have the same one.
///
/// A store on disk needs a hash that no version of Rust changes.
fn shard(event: &Event) -> u8 {
    let mut hasher = DefaultHasher::new();
    match &event.aggregate {
        Some(aggregate) => aggregate.hash(&mut hasher),
        None => event.id.hash(&mut hasher),
    }
    hasher.finish().to_le_bytes()[0] % SHARDS
}

impl Outbox for Memory {
    async fn purge_events(
        &self,
        retention: Duration,
        inbox_retention: Duration,
    ) -> Result<u64, StoreError> {
        let now = self.clock.now();
        let mut guard = self.tables();
        let tables = &mut *guard;
        let old = tables
            .inbox
            .iter()
            .filter(|(_, row)| row.accepted_at.after(inbox_retention) <= now);
        let old: Vec<_> = old.map(|(key, _)| key.clone()).take(PURGE_ROWS).collect();
        for key in &old {
            tables.inbox.remove(key);
        }

        // Without a partition, all events are kept.
        let frontiers = tables
            .partitions
            .values()
            .map(|partition| partition.checkpoint.frontier.high);
        let frontier = frontiers.min().unwrap_or(0);
        let passed = tables
            .events
            .range(..=frontier)
            .filter(|(position, stored)| {
                let mut partitions = tables.partitions.values();
                stored.event.created_at.after(retention) <= now
                    && !partitions.any(|partition| partition.parked.contains_key(position))
            });
        let passed: Vec<_> = passed
            .map(|(position, _)| *position)
            .take(PURGE_ROWS)
            .collect();
        for position in &passed {
            tables.events.remove(position);
        }
        for partition in tables.partitions.values_mut() {
            let is_passed = |position: &i64| passed.binary_search(position).is_ok();
            partition
                .arrivals
                .retain(|position, _| !is_passed(position));
            partition
                .attempts
                .retain(|row| !is_passed(&row.attempt.position));
        }
        Ok((old.len() + passed.len()) as u64)
    }
}
