//! Settlements, and what is left to deliver.

use std::ops::Bound;

use bytes::Bytes;
use hapax::{
    Timestamp,
    admin::destination_of,
    delivery::{Attempt, AttemptOutcome, Backlog, Parked, ParkedState, Settlement},
    event::Event,
    limits::READ_BYTES,
    store::{Settlements, StoreError, Summaries},
};

use crate::{
    Memory,
    tables::{AttemptRow, ParkedRow, Partition, Tables},
};

impl Settlements for Memory {
    async fn ignore_keys(
        &self,
        partition: &str,
        epoch: i64,
        after: i64,
        limit: usize,
    ) -> Result<Option<i64>, StoreError> {
        let now = self.clock.now();
        let mut tables = self.tables();
        let owned = tables.partitions.get_mut(partition);
        let Some(partition) = owned.filter(|partition| partition.epoch == epoch) else {
            return Ok(None);
        };
        let rows = (Bound::Excluded(after), Bound::Unbounded);
        let rows = partition.parked.range_mut(rows);
        let live = rows.filter(|(_, row)| row.park.state != ParkedState::Dead);
        let mut last = None;
        for (position, row) in live.take(limit) {
            if row.park.state == ParkedState::Blocked {
                row.park.order_key = None;
                row.retry_at(now);
            }
            last = Some(*position);
        }
        Ok(last)
    }

    async fn settle(&self, settlement: Settlement) -> Result<Vec<String>, StoreError> {
        let now = self.clock.now();
        let mut guard = self.tables();
        let tables = &mut *guard;
        check_owner(tables, &settlement)?;
        let name = &settlement.destination;
        let partition = tables.partitions.get_mut(name).ok_or(StoreError::Fenced)?;
        let release = settlement.release.clone();
        let is_written = settlement.number > 0 && partition.settlement >= settlement.number;
        if !is_written {
            write(partition, settlement, now);
        }
        let free = release
            .into_iter()
            .filter(|key| partition.release(key, now));
        Ok(free.collect())
    }

    async fn blocked_keys(&self, partition: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let tables = self.tables();
        let partition = tables.partitions.get(partition);
        Ok(partition.map_or_else(Vec::new, |partition| partition.blocked_keys(limit)))
    }

    async fn blocked(&self, partition: &str, keys: &[String]) -> Result<Vec<String>, StoreError> {
        let tables = self.tables();
        let partition = tables.partitions.get(partition);
        let is_blocked = |key: &&String| {
            partition.is_some_and(|partition| partition.unfinished(key).next().is_some())
        };
        Ok(keys.iter().filter(is_blocked).cloned().collect())
    }

    async fn due(
        &self,
        destination: &str,
        except: &[i64],
        limit: usize,
        behind: usize,
    ) -> Result<Vec<Parked>, StoreError> {
        let now = self.clock.now();
        let tables = self.tables();
        let Some(partition) = tables.partitions.get(destination) else {
            return Ok(Vec::new());
        };
        let is_wanted = |row: &&ParkedRow| !except.contains(&row.park.position);
        let due = partition.parked.values().filter(|row| row.is_due(now));
        let mut due: Vec<_> = due.filter(is_wanted).collect();
        due.sort_by_key(|row| row.park.next_at);
        let blocked = due
            .iter()
            .flat_map(|head| blocked_by(partition, head, behind));
        let rows = due.iter().copied().chain(blocked.filter(is_wanted));
        let mut bytes = 0;
        let mut parked = Vec::new();
        for row in rows {
            if parked.len() == limit || bytes > READ_BYTES {
                break;
            }
            let Some(event) = tables.events.get(&row.park.position) else {
                continue;
            };
            bytes += event.event.stored_bytes();
            parked.push(Parked {
                event: event.clone(),
                state: row.park.state,
                attempt: row.park.attempt,
                next_at: row.park.next_at,
                order_key: row.park.order_key.clone(),
                manual: false,
            });
        }
        Ok(parked)
    }

    async fn next_due(&self, destination: &str) -> Result<Option<Timestamp>, StoreError> {
        let tables = self.tables();
        let partition = tables.partitions.get(destination);
        let rows = partition
            .into_iter()
            .flat_map(|partition| partition.parked.values());
        let waiting = rows.filter(|row| row.waits_for_time());
        Ok(waiting.map(|row| row.park.next_at).min())
    }

    async fn backlog(&self, destination: &str) -> Result<Backlog, StoreError> {
        let tables = self.tables();
        let Some(partition) = tables.partitions.get(destination) else {
            let start = tables.starts.get(destination_of(destination)).copied();
            let after = (Bound::Excluded(start.unwrap_or_default()), Bound::Unbounded);
            let events: Vec<_> = tables.events.range(after).collect();
            let times = events.iter().map(|(_, stored)| due_at(&stored.event));
            return Ok(Backlog {
                events: events.len() as u64,
                oldest_at: times.min(),
                ..Backlog::default()
            });
        };
        let after = (
            Bound::Excluded(partition.checkpoint.frontier.high),
            Bound::Unbounded,
        );
        let unread = tables.events.range(after).map(|(position, _)| position);
        let unread = unread.filter(|position| !partition.checkpoint.settled.contains(position));
        let parked = partition.parked.iter();
        let parked = parked.filter(|(_, row)| row.park.state != ParkedState::Dead);
        let parked: Vec<_> = parked.map(|(position, _)| position).collect();
        let open: Vec<_> = unread.chain(parked.iter().copied()).collect();
        let events = open
            .iter()
            .filter_map(|position| tables.events.get(position));
        Ok(Backlog {
            events: open.len() as u64,
            parked: parked.len() as u64,
            dead: (partition.parked.len() - parked.len()) as u64,
            oldest_at: events.map(|stored| due_at(&stored.event)).min(),
            newest: Some(partition.newest()),
        })
    }
}

impl Summaries for Memory {}

/// An event is due when it was written, unless it has to wait for a later time.
fn due_at(event: &Event) -> Timestamp {
    event.created_at.max(event.available_at.unwrap_or_default())
}

/// Refuses a settlement if the partition has another owner, or if the owner knows a history that
/// was lost when a backup was restored.
fn check_owner(tables: &Tables, settlement: &Settlement) -> Result<(), StoreError> {
    let newest = tables.partitions.get(&settlement.destination);
    let newest = newest.map(Partition::newest).unwrap_or_default();
    let Some(follows) = settlement.follows else {
        let is_owner = newest.epoch == settlement.epoch;
        return is_owner.then_some(()).ok_or(StoreError::Fenced);
    };
    if newest.epoch > settlement.epoch {
        return Err(StoreError::Fenced);
    }
    if newest.epoch == settlement.epoch && newest.settlement == settlement.number {
        return Ok(());
    }
    let mut seen = settlement.seen.iter();
    let is_known = seen.all(|(position, id)| {
        let stored = tables.events.get(position);
        stored.is_some_and(|stored| stored.event.id == *id)
    });
    if newest != follows || !is_known {
        return Err(StoreError::SetBack {
            what: format!("its newest checkpoint is {newest}, and {follows} was written"),
        });
    }
    Ok(())
}

/// Writes a settlement in the order of its fields. The caller releases its order keys.
fn write(partition: &mut Partition, settlement: Settlement, now: Timestamp) {
    if let Some(checkpoint) = settlement.checkpoint {
        partition.checkpoint = checkpoint;
        partition.settlement = settlement.number;
        partition.written_at = now;
    }
    for (position, number) in settlement.begin {
        let row = partition.parked.get_mut(&position);
        if let Some(row) = row.filter(|row| row.park.state != ParkedState::Dead) {
            row.park.attempt = number;
            row.begun_at = Some(now);
            if row.park.state == ParkedState::Blocked {
                row.park.state = ParkedState::Retrying;
            }
        }
    }
    // All rows are written before one is unblocked: a row may be blocked by a later one of the list.
    let blocked = settlement
        .park
        .iter()
        .filter(|park| park.state == ParkedState::Blocked);
    let blocked: Vec<_> = blocked.map(|park| park.position).collect();
    for park in settlement.park {
        let row = ParkedRow {
            park,
            begun_at: None,
            changed_at: now,
        };
        partition.parked.insert(row.park.position, row);
    }
    for position in blocked {
        unblock(partition, position, now);
    }
    for position in settlement.delivered {
        partition.parked.remove(&position);
    }
    let attempts = settlement.attempts.into_iter();
    partition
        .attempts
        .extend(attempts.map(|attempt| AttemptRow {
            attempt,
            interrupted: None,
        }));
    for batch in settlement.arrived {
        let arrivals = batch.positions.iter().map(|position| {
            let attempt = Attempt {
                position: *position,
                number: 1,
                started_at: batch.started_at,
                duration: batch.duration,
                outcome: AttemptOutcome::Delivered,
                status: batch.status,
                error: None,
                response_head: Bytes::new(),
            };
            (*position, attempt)
        });
        partition.arrivals.extend(arrivals);
    }
    if settlement.disable.is_some() {
        partition.disabled_reason = settlement.disable;
    }
}

/// Makes a blocked delivery due if no unfinished delivery of its order key is before it.
fn unblock(partition: &mut Partition, position: i64, now: Timestamp) {
    let row = partition.parked.get(&position);
    let key = row.and_then(|row| row.park.order_key.as_deref());
    let first = key.and_then(|key| partition.unfinished(key).next());
    if first.is_none_or(|first| first.park.position == position)
        && let Some(row) = partition.parked.get_mut(&position)
    {
        row.retry_at(now);
    }
}

/// The deliveries that wait for a due one: up to `behind` of its order key, up to the first that is
/// not blocked.
fn blocked_by<'a>(
    partition: &'a Partition,
    head: &'a ParkedRow,
    behind: usize,
) -> impl Iterator<Item = &'a ParkedRow> {
    let is_retrying = head.park.state == ParkedState::Retrying;
    let key = head.park.order_key.as_deref().filter(|_| is_retrying);
    let rows = key.into_iter().flat_map(|key| partition.unfinished(key));
    let later = rows.filter(|row| row.park.position > head.park.position);
    later
        .take(behind)
        .take_while(|row| row.park.state == ParkedState::Blocked)
}

impl ParkedRow {
    fn waits_for_time(&self) -> bool {
        matches!(
            self.park.state,
            ParkedState::Scheduled | ParkedState::Retrying
        )
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.waits_for_time() && self.park.next_at <= now
    }
}
