//! One batch of a job: its work, the number of events it processed, and where the next one begins.
//!
//! A batch is one transaction. A job records its progress in the same transaction.

use hapax::{
    Timestamp,
    admin::{Actor, AdminError, EventFilter, Job, JobKind, destination_object},
    store::StoreError,
};
use serde_json::Value;

use super::{audited::AuditedTransaction, dead_letters, filters::Filters};
use crate::{
    error::corrupt,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

/// Deliveries that one batch changes: few enough that the partition's owner hardly waits.
const BATCH: u32 = 500;
/// Events that one batch reads.
const LOOK: i64 = 20_000;
/// Rows of a removed destination that one batch deletes.
const FORGET: i64 = 2_000;

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

pub(super) async fn run(
    act: &mut AuditedTransaction<'_>,
    store: &Postgres,
    job: &Job,
) -> Result<Batch, AdminError> {
    match job.kind {
        JobKind::ReplayDeadLetters | JobKind::DiscardDeadLetters => dead(act, store, job).await,
        JobKind::ReplayEvents => offer(act, store, job).await,
        JobKind::RemoveDestination => forget(act, job).await,
    }
}

/// Replays or discards the next dead letters of the partition that the job has reached.
///
/// Only deliveries that were dead when they were counted are processed. The operator has not seen
/// those that died since, and they could keep the job from ending.
async fn dead(
    act: &mut AuditedTransaction<'_>,
    store: &Postgres,
    job: &Job,
) -> Result<Batch, AdminError> {
    let (arguments, find) = read(job)?;
    let opened = act
        .ask(
            query!("admin/partitions"),
            &[&Some(job.destination.as_str())],
        )
        .await?;
    let partitions: Vec<String> = opened.iter().map(|row| row.get(0)).collect();
    let mut rest = partitions
        .iter()
        .filter(|partition| **partition >= job.partition);
    let Some(partition) = rest.next() else {
        return Ok(ended(job, 0));
    };
    let after = if *partition == job.partition {
        job.position
    } else {
        0
    };
    act.hold(partition).await?;
    let size = i64::from(size(job));
    let until = arguments["until"].as_i64().unwrap_or(i64::MAX);
    let counted_at = arguments["counted_at"].as_i64();
    let counted_at = counted_at.map_or(job.created_at, Timestamp::from_millis);
    let (seen, counted_at) = (arguments["seen"].as_str(), Moment(counted_at));
    let params = find.with(&[
        partition,
        &after,
        &size,
        &find.attempts_min,
        &find.error,
        &until,
        &seen,
        &counted_at,
    ]);
    let looked = act.ask(query!("admin/dead_beyond"), &params).await?;
    let fits = looked.iter().filter(|row| row.get(1));
    let positions: Vec<i64> = fits.map(|row| row.get(0)).collect();
    let done = if job.kind == JobKind::ReplayDeadLetters {
        dead_letters::replay_all(act, store, partition, &positions).await?
    } else {
        let reason = arguments["reason"].as_str().unwrap_or_default();
        dead_letters::discard_all(act, store, partition, &positions, reason).await?
    };
    if let Some(last) = looked.last().filter(|_| rows(looked.len()) == size) {
        return Ok(Batch {
            done,
            partition: partition.clone(),
            position: last.get(0),
            ended: false,
        });
    }
    Ok(match rest.next() {
        Some(next) => Batch {
            done,
            partition: next.clone(),
            position: 0,
            ended: false,
        },
        None => ended(job, done),
    })
}

/// Makes the next events due again for the destination.
async fn offer(
    act: &mut AuditedTransaction<'_>,
    store: &Postgres,
    job: &Job,
) -> Result<Batch, AdminError> {
    let (arguments, find) = read(job)?;
    let partitions = arguments["partitions"].as_i64().unwrap_or(1);
    let until = arguments["until"].as_i64().unwrap_or(0);
    act.ask(query!("admin/hold_rotation"), &[]).await?;
    act.ask(query!("admin/check_again"), &[]).await?;
    // All partitions are locked in order, so that transactions which lock several do not deadlock.
    let opened = act
        .ask(
            query!("admin/partitions"),
            &[&Some(job.destination.as_str())],
        )
        .await?;
    if opened.is_empty() {
        let what = destination_object(&job.destination);
        return Err(AdminError::not_found(what));
    }
    for row in &opened {
        act.hold(row.get(0)).await?;
    }
    let (size, now) = (i64::from(size(job)), store.now());
    let params = find.with(&[
        &until,
        &job.position,
        &LOOK,
        &size,
        &job.destination,
        &partitions,
        &now,
    ]);
    let offered = act.ask(query!("admin/offer_again"), &params).await?;
    let row = offered
        .first()
        .ok_or_else(|| corrupt("a batch returned no row"))?;
    let done = row.get::<_, i64>(0).unsigned_abs();
    let position = if row.get::<_, i64>(1) == size {
        row.get("last_looked")
    } else {
        row.get("last_ahead")
    };
    Ok(match position {
        Some(position) => Batch {
            done,
            partition: String::new(),
            position,
            ended: false,
        },
        None => ended(job, done),
    })
}

/// Deletes the rows of a removed destination: its partitions first, then its deliveries.
async fn forget(act: &mut AuditedTransaction<'_>, job: &Job) -> Result<Batch, AdminError> {
    let name = &job.destination;
    let mut partitions = vec![name.clone()];
    partitions.extend((0..16).map(|partition| format!("{name}/{partition}")));
    // Without these locks, an owner could commit a checkpoint that no delete of this batch sees.
    let named = Some(name.as_str());
    for row in &act.ask(query!("admin/partitions"), &[&named]).await? {
        act.hold(row.get(0)).await?;
    }
    act.ask(query!("admin/forget_partitions"), &[&partitions])
        .await?;
    let params: [&dyn Param; 2] = [&partitions, &FORGET];
    let gone = act.ask(query!("admin/forget_deliveries"), &params).await?;
    let done = gone.len() as u64;
    if done > 0 {
        return Ok(Batch {
            ended: false,
            ..ended(job, done)
        });
    }
    act.ask(query!("admin/hold_declarations"), &[]).await?;
    act.ask(query!("admin/purged"), &[name]).await?;
    Ok(ended(job, 0))
}

/// Maximum number of deliveries that a batch changes: at most the number allowed per second.
fn size(job: &Job) -> u32 {
    job.per_second.unwrap_or(BATCH).clamp(1, BATCH)
}

fn ended(job: &Job, done: u64) -> Batch {
    Batch {
        done,
        partition: job.partition.clone(),
        position: job.position,
        ended: true,
    }
}

fn read(job: &Job) -> Result<(&Value, Filters), StoreError> {
    let filter = EventFilter::of_arguments(&job.arguments);
    let find = filter.and_then(|filter| Filters::of(&Actor::new(""), &filter));
    let find = find.ok_or_else(|| corrupt(format!("arguments of job {}", job.id)))?;
    Ok((&job.arguments, find))
}
