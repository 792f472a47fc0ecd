//! Dead letters, and the attempts at a delivery.

use std::ops::Bound;

use hapax::{
    dead_letter::DeadLetter,
    delivery::{Attempt, ParkedState},
    store::{DeadLetters, StoreError},
};

use crate::{Memory, tables::Partition};

impl DeadLetters for Memory {
    async fn attempts(&self, partition: &str, position: i64) -> Result<Vec<Attempt>, StoreError> {
        let tables = self.tables();
        let partition = tables.partitions.get(partition);
        Ok(partition.map_or_else(Vec::new, |partition| partition.attempts(position)))
    }

    async fn dead_letters(
        &self,
        destination: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let tables = self.tables();
        let Some(partition) = tables.partitions.get(destination) else {
            return Ok(Vec::new());
        };
        let rows = (Bound::Excluded(after), Bound::Unbounded);
        let rows = partition.parked.range(rows);
        let dead = rows.filter(|(_, row)| row.park.state == ParkedState::Dead);
        let letters = dead.filter_map(|(position, row)| {
            Some(DeadLetter {
                event: tables.events.get(position)?.clone(),
                attempts: row.park.attempt,
                last_error: row.park.last_error.clone().unwrap_or_default(),
                died_at: row.changed_at,
                log: partition.attempts(*position),
            })
        });
        Ok(letters.take(limit).collect())
    }

    async fn replay(&self, destination: &str, position: i64) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let mut tables = self.tables();
        let partition = tables.partitions.get_mut(destination);
        let Some(partition) = partition.filter(|partition| is_dead(partition, position)) else {
            return Ok(false);
        };
        if let Some(row) = partition.parked.get_mut(&position) {
            row.park.attempt = 0;
            row.retry_at(now);
        }
        self.notifier.notify();
        Ok(true)
    }

    async fn discard(
        &self,
        destination: &str,
        position: i64,
        reason: &str,
    ) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let mut tables = self.tables();
        let partition = tables.partitions.get_mut(destination);
        let Some(partition) = partition.filter(|partition| is_dead(partition, position)) else {
            return Ok(false);
        };
        let row = partition.parked.remove(&position);
        if let Some(key) = row.and_then(|row| row.park.order_key) {
            partition.release(&key, now);
            self.notifier.notify();
        }
        tracing::info!(destination, position, reason, "dead letter discarded");
        Ok(true)
    }
}

fn is_dead(partition: &Partition, position: i64) -> bool {
    let row = partition.parked.get(&position);
    row.is_some_and(|row| row.park.state == ParkedState::Dead)
}
