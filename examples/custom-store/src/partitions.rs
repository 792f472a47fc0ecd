//! Where destinations start, ownership of partitions, and the membership of nodes.

use std::{mem, time::Duration};

use bytes::Bytes;
use hapax::{
    Timestamp,
    admin::destination_of,
    delivery::{
        Attempt, AttemptOutcome, Membership, Opened, OwnedPartition, Park, ParkedState, Start,
    },
    limits::BLOCKED_KEYS,
    store::{Partitions, Starts, StoreError},
};

use crate::{
    Memory,
    tables::{AttemptRow, Node, ParkedRow, Partition, Tables},
};

const INTERRUPTED: &str = "the relay ended before the attempt did";

impl Starts for Memory {
    async fn record_start(&self, destination: &str, start: Start) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let mut opened = tables.partitions.keys();
        let is_opened = opened.any(|partition| destination_of(partition) == destination);
        if is_opened || tables.starts.contains_key(destination) {
            return Ok(false);
        }
        // Positions are in commit order, so later commits have higher positions.
        let last = tables.last_position;
        let after = match start {
            Start::Beginning => 0,
            Start::Now => last,
            Start::At(time) => {
                let mut events = tables.events.values();
                let first = events.find(|stored| stored.event.created_at >= time);
                first.map_or(last, |first| first.position - 1)
            }
        };
        tables.starts.insert(destination.to_owned(), after);
        Ok(true)
    }
}

impl Partitions for Memory {
    async fn open(&self, destination: &str) -> Result<Opened, StoreError> {
        let now = self.clock.now();
        Ok(open(&mut self.tables(), destination, None, now))
    }

    async fn take(
        &self,
        partition: &str,
        node: &str,
        lease: Duration,
    ) -> Result<Option<Opened>, StoreError> {
        let now = self.clock.now();
        let mut tables = self.tables();
        let owner = tables.partitions.get(partition);
        let owner = owner.and_then(|partition| partition.owner.clone());
        let other = owner.filter(|owner| owner != node);
        let other_node = other.as_ref().and_then(|other| tables.nodes.get(other));
        if other_node.is_some_and(|other| other.is_live(lease, now)) {
            return Ok(None);
        }
        let opened = open(&mut tables, partition, other, now);
        if let Some(partition) = tables.partitions.get_mut(partition) {
            partition.owner = Some(node.to_owned());
        }
        tables.nodes.entry(node.to_owned()).or_default().seen_at = now;
        Ok(Some(opened))
    }

    async fn heartbeat(
        &self,
        node: &str,
        knows: &[String],
        lease: Duration,
    ) -> Result<Membership, StoreError> {
        let now = self.clock.now();
        let mut tables = self.tables();
        let beat = Node {
            seen_at: now,
            knows: knows.iter().cloned().collect(),
        };
        tables.nodes.insert(node.to_owned(), beat);
        let live = |(name, row): &(&String, &Node)| *name == node || row.is_live(lease, now);
        let mut membership = Membership::default();
        for (name, row) in tables.nodes.iter().filter(live) {
            membership.nodes.push(name.clone());
            if !row.knows.is_empty() {
                membership.knows.insert(name.clone(), row.knows.clone());
            }
        }
        for (name, row) in &tables.partitions {
            let owner = row
                .owner
                .as_ref()
                .filter(|owner| membership.nodes.contains(owner));
            membership.held.extend(owner.map(|owner| OwnedPartition {
                partition: name.clone(),
                node: owner.clone(),
                epoch: row.epoch,
            }));
        }
        Ok(membership)
    }

    async fn give_up(&self, partition: &str, epoch: i64) -> Result<(), StoreError> {
        let mut tables = self.tables();
        let owned = tables.partitions.get_mut(partition);
        let owned = owned.filter(|partition| partition.epoch == epoch);
        owned.ok_or(StoreError::Fenced)?.owner = None;
        Ok(())
    }

    async fn leave(&self, node: &str) -> Result<(), StoreError> {
        let mut tables = self.tables();
        tables.nodes.remove(node);
        let partitions = tables.partitions.values_mut();
        for partition in partitions.filter(|partition| partition.owner.as_deref() == Some(node)) {
            partition.owner = None;
        }
        Ok(())
    }

    async fn outlived(
        &self,
        partition: &str,
        positions: &[i64],
    ) -> Result<Vec<(i64, u32)>, StoreError> {
        let tables = self.tables();
        let Some(partition) = tables.partitions.get(partition) else {
            return Ok(Vec::new());
        };
        let is_outlived = |row: &&AttemptRow| {
            row.interrupted.as_ref().is_some_and(|(node, seen_at)| {
                tables.nodes.get(node).map(|node| node.seen_at) > *seen_at
            })
        };
        let count = |position: &i64| {
            let attempts = partition.attempts.iter().filter(is_outlived);
            let attempts = attempts.filter(|row| row.attempt.position == *position);
            let count = u32::try_from(attempts.count()).unwrap_or(u32::MAX);
            (count > 0).then_some((*position, count))
        };
        Ok(positions.iter().filter_map(count).collect())
    }
}

impl Node {
    /// Whether its last heartbeat is younger than `lease`. A heartbeat far in the future does not
    /// count: the clock was set back since.
    fn is_live(&self, lease: Duration, now: Timestamp) -> bool {
        self.seen_at.after(lease) > now && now.after(lease) > self.seen_at
    }
}

/// Opens a partition: fences the previous owner, and parks what it was offering. `other` is the
/// previous owner, if it is another node.
fn open(tables: &mut Tables, name: &str, other: Option<String>, now: Timestamp) -> Opened {
    let interrupted = other.map(|node| {
        let seen_at = tables.nodes.get(&node).map(|node| node.seen_at);
        (node, seen_at)
    });
    let start = tables.starts.get(destination_of(name)).copied();
    let new = || {
        let mut new = Partition::default();
        new.checkpoint.frontier.high = start.unwrap_or_default();
        new
    };
    let partition = tables.partitions.entry(name.to_owned()).or_insert_with(new);
    partition.epoch += 1;
    partition.settlement = 0;
    partition.owner = None;
    let mut attempts = interrupt_begun(partition, now);
    for position in mem::take(&mut partition.checkpoint.offered) {
        partition.checkpoint.settled.insert(position);
        let is_parked = partition.parked.contains_key(&position);
        let Some(stored) = tables.events.get(&position).filter(|_| !is_parked) else {
            continue;
        };
        let first = ParkedRow {
            park: Park {
                position,
                state: ParkedState::Retrying,
                attempt: 1,
                next_at: now,
                order_key: stored.event.order_key(),
                last_error: Some(INTERRUPTED.to_owned()),
            },
            begun_at: None,
            changed_at: now,
        };
        partition.parked.insert(position, first);
        attempts.push(interrupted_attempt(position, 1, partition.written_at));
    }
    let count = attempts.len() as u64;
    partition
        .attempts
        .extend(attempts.into_iter().map(|attempt| AttemptRow {
            attempt,
            interrupted: interrupted.clone(),
        }));
    Opened {
        epoch: partition.epoch,
        newest: partition.newest(),
        checkpoint: partition.checkpoint.clone(),
        blocked_keys: partition.blocked_keys(BLOCKED_KEYS + 1),
        interrupted: count,
        was_disabled: partition.disabled_reason.take(),
    }
}

/// Makes the parked deliveries due whose attempt had started. Returns these attempts.
fn interrupt_begun(partition: &mut Partition, now: Timestamp) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    for row in partition.parked.values_mut() {
        if let Some(begun_at) = row.begun_at.take() {
            row.retry_at(now);
            row.park.last_error = Some(INTERRUPTED.to_owned());
            let Park {
                position, attempt, ..
            } = row.park;
            attempts.push(interrupted_attempt(position, attempt, begun_at));
        }
    }
    attempts
}

fn interrupted_attempt(position: i64, number: u32, started_at: Timestamp) -> Attempt {
    Attempt {
        position,
        number,
        started_at,
        duration: Duration::ZERO,
        outcome: AttemptOutcome::Interrupted,
        status: None,
        error: Some(INTERRUPTED.to_owned()),
        response_head: Bytes::new(),
    }
}
