//! One batch of a job: its work, the number of events it processed, and where the next one begins.
//!
//! A batch is one transaction. A job records its progress in the same transaction. While a batch
//! runs, the service cannot write, so batches are small.

use std::{collections::BTreeSet, ops::ControlFlow};

use hapax::{
    admin::{Actor, AdminError, EventFilter, Job, JobKind, destination_object},
    delivery::positions,
};
use rusqlite::params;

use super::{
    audited::AuditedTransaction,
    dead_letters::{self, Bounds},
    destinations::opened,
    filters::Filters,
};
use crate::{error::corrupt, outbox, query, value::rows};

/// Deliveries that one batch changes.
const BATCH: u32 = 200;
/// Events and dead letters that one batch visits.
const LOOK: usize = 5_000;
/// Rows of a removed destination that one batch deletes.
const FORGET: usize = 500;
/// The partitions that a destination can have.
const PARTITIONS_MAX: u8 = 16;

/// The result of a batch.
pub(super) struct Batch {
    /// The number of processed events.
    pub(super) done: u64,
    /// The partition and the position where the next batch begins.
    pub(super) partition: String,
    pub(super) position: i64,
    /// Whether there is no next batch.
    pub(super) ended: bool,
}

pub(super) fn run(act: &AuditedTransaction<'_>, job: &Job) -> Result<Batch, AdminError> {
    match job.kind {
        JobKind::ReplayDeadLetters | JobKind::DiscardDeadLetters => dead(act, job),
        JobKind::ReplayEvents => offer(act, job),
        JobKind::RemoveDestination => forget(act, job),
    }
}

/// Replays or discards the next dead letters of the partition that the job has reached.
///
/// Only deliveries that were dead when they were counted are processed. The operator has not seen
/// those that died since, and they could keep the job from ending.
fn dead(act: &AuditedTransaction<'_>, job: &Job) -> Result<Batch, AdminError> {
    let find = filters(job)?;
    let partitions = opened(act, Some(&job.destination))?;
    let mut rest = partitions
        .iter()
        .map(|partition| &partition.name)
        .filter(|partition| **partition >= job.partition);
    let Some(partition) = rest.next() else {
        return Ok(ended(job, 0));
    };
    let bounds = Bounds {
        after: if *partition == job.partition {
            job.position
        } else {
            0
        },
        until: job.arguments["until"].as_i64().unwrap_or(i64::MAX),
        deaths: job.arguments["deaths"].as_i64().unwrap_or(i64::MAX),
    };
    let (mut matching, mut looked, mut last) = (Vec::new(), 0, None);
    dead_letters::visit(act, &find, partition, bounds, |position, fits| {
        matching.extend(fits.then_some(position));
        looked += 1;
        if matching.len() == size(job) || looked == LOOK {
            last = Some(position);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    let done = if job.kind == JobKind::ReplayDeadLetters {
        dead_letters::replay_all(act, partition, &matching)?
    } else {
        let reason = job.arguments["reason"].as_str().unwrap_or_default();
        dead_letters::discard_all(act, partition, &matching, reason)?
    };
    let next = match last {
        Some(position) => Some((partition, position)),
        None => rest.next().map(|partition| (partition, 0)),
    };
    Ok(match next {
        Some((partition, position)) => Batch {
            done,
            partition: partition.clone(),
            position,
            ended: false,
        },
        None => ended(job, done),
    })
}

/// Makes the next events due again for the destination.
fn offer(act: &AuditedTransaction<'_>, job: &Job) -> Result<Batch, AdminError> {
    let (find, places) = (filters(job)?, places(act, job)?);
    let until = job.arguments["until"].as_i64().unwrap_or(0);
    let count = u8::try_from(places.len()).unwrap_or(PARTITIONS_MAX).max(1);
    let (mut chosen, mut looked, mut last) = (Vec::new(), 0, None);
    act.visit(
        query!("admin/events_beyond"),
        params![job.position, until],
        |row| {
            let position: i64 = row.get("id")?;
            if find.event(row)? {
                chosen.push((position, usize::from(outbox::shard(row)? % count)));
            }
            looked += 1;
            if chosen.len() == size(job) || looked == LOOK {
                last = Some(position);
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        },
    )?;
    let mut done = 0;
    for (position, number) in chosen {
        let Some(place) = places
            .get(number)
            .filter(|place| place.has_settled(position))
        else {
            continue;
        };
        let params = params![place.partition, position, act.now.as_millis()];
        done += act.execute(query!("admin/offer_again"), params)? as u64;
    }
    Ok(match last {
        Some(position) => Batch {
            done,
            partition: String::new(),
            position,
            ended: false,
        },
        None => ended(job, done),
    })
}

/// How far a partition is settled. Events beyond are delivered anyway.
struct PartitionProgress {
    partition: String,
    frontier: i64,
    settled: BTreeSet<i64>,
}

impl PartitionProgress {
    fn has_settled(&self, position: i64) -> bool {
        position <= self.frontier || self.settled.contains(&position)
    }
}

/// The partitions of a job's destination, in the order of their numbers.
fn places(act: &AuditedTransaction<'_>, job: &Job) -> Result<Vec<PartitionProgress>, AdminError> {
    let name = &job.destination;
    if opened(act, Some(name))?.is_empty() {
        return Err(AdminError::not_found(destination_object(name)));
    }
    let count = job.arguments["partitions"].as_u64().unwrap_or(1);
    let partitions = match count {
        1 => vec![name.clone()],
        count => (0..count)
            .map(|number| format!("{name}/{number}"))
            .collect(),
    };
    let place = |partition: String| {
        let found = act.first(query!("delivery/find_checkpoint"), [&partition], |row| {
            Ok((row.get("frontier")?, row.get::<_, String>("settled")?))
        })?;
        let (frontier, settled) = found.unwrap_or_default();
        let settled = positions::parse(&settled)
            .ok_or_else(|| corrupt(format!("checkpoint of {partition}")))?;
        Ok(PartitionProgress {
            partition,
            frontier,
            settled,
        })
    };
    partitions.into_iter().map(place).collect()
}

/// Deletes the rows of a removed destination: its partitions first, then its deliveries.
fn forget(act: &AuditedTransaction<'_>, job: &Job) -> Result<Batch, AdminError> {
    let name = &job.destination;
    let mut partitions = vec![name.clone()];
    partitions.extend((0..PARTITIONS_MAX).map(|number| format!("{name}/{number}")));
    for partition in &partitions {
        for sql in [
            query!("admin/keep_epoch"),
            query!("admin/forget_checkpoint"),
            query!("admin/forget_absence"),
            query!("admin/forget_partition"),
        ] {
            act.execute(sql, [partition])?;
        }
    }
    act.execute(query!("admin/forget_start"), [name])?;
    let mut gone = 0;
    for partition in &partitions {
        let params = params![partition, rows(FORGET - gone)];
        gone += act.execute(query!("admin/forget_deliveries"), params)?;
        if gone >= FORGET {
            break;
        }
    }
    if gone > 0 {
        let batch = ended(job, gone as u64);
        return Ok(Batch {
            ended: false,
            ..batch
        });
    }
    let params = params![name, act.now.as_millis()];
    act.execute(query!("admin/purged"), params)?;
    Ok(ended(job, 0))
}

/// Maximum number of deliveries that a batch changes: at most the number allowed per second.
fn size(job: &Job) -> usize {
    job.per_second.unwrap_or(BATCH).clamp(1, BATCH) as usize
}

fn ended(job: &Job, done: u64) -> Batch {
    Batch {
        done,
        partition: job.partition.clone(),
        position: job.position,
        ended: true,
    }
}

fn filters(job: &Job) -> Result<Filters, AdminError> {
    let filter = EventFilter::of_arguments(&job.arguments);
    let find = filter.and_then(|filter| Filters::of(&Actor::new(""), &filter));
    Ok(find.ok_or_else(|| corrupt(format!("arguments of job {}", job.id)))?)
}
