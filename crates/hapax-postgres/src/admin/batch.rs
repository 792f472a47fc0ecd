//! One batch of a job: its work, the number of events it processed, and where the next one begins.
//!
//! A batch is one transaction. A job records its progress in the same transaction.

use hapax::{
    Timestamp,
    admin::{Actor, AdminError, EventFilter, Job, JobKind, Partition},
    event::EventId,
    key::Tenant,
    store::StoreError,
};
use serde_json::{Value, json};

use super::{audited::AuditedTransaction, dead_letters, destinations, filters::Filters};
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
const PARTS: [u8; 5] = [1, 2, 4, 8, 16];

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

/// A filter as JSON for the arguments of a job, limited to the operator's tenant.
pub(super) fn spell(actor: &Actor, filter: &EventFilter) -> Result<Value, AdminError> {
    if Filters::of(actor, filter).is_none() {
        return Err(AdminError::invalid("tenant", "must be your own"));
    }
    let tenant = actor.tenant.as_ref().or(filter.tenant.as_ref());
    Ok(json!({
        "type": filter.kind,
        "tenant": tenant.map(Tenant::as_str),
        "aggregate_type": filter.aggregate_type,
        "aggregate_id": filter.aggregate_id,
        "event_id": filter.event_id.map(|id| id.to_string()),
        "since": filter.since.map(Timestamp::as_millis),
        "until": filter.until.map(Timestamp::as_millis),
        "attempts_min": filter.attempts_min,
        "error": filter.error,
    }))
}

/// The number of partitions of a destination: as the caller says, or as many as were opened.
pub(super) fn count_partitions(
    destination: &str,
    opened: &[Partition],
    declared: Option<u8>,
) -> Result<u8, AdminError> {
    if opened.is_empty() {
        return Err(AdminError::not_found(destinations::object(destination)));
    }
    let count = u8::try_from(opened.len()).unwrap_or(u8::MAX);
    let partitions = declared.unwrap_or(count);
    if !PARTS.contains(&partitions) || count != partitions {
        let what = format!("{count} partitions of {destination} are open: let a relay open all");
        return Err(AdminError::conflict(what));
    }
    Ok(partitions)
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
        let what = destinations::object(&job.destination);
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
    let bad = || corrupt(format!("arguments of job {}", job.id));
    let arguments = &job.arguments;
    let spelled = arguments.get("filter").ok_or_else(bad)?;
    let word = |name: &str| spelled[name].as_str().map(str::to_owned);
    let moment = |name: &str| spelled[name].as_i64().map(Timestamp::from_millis);
    let id: Option<EventId> = word("event_id")
        .map(|id| id.parse())
        .transpose()
        .map_err(|_| bad())?;
    let filter = EventFilter {
        kind: word("type"),
        tenant: word("tenant")
            .map(Tenant::new)
            .transpose()
            .map_err(|_| bad())?,
        aggregate_type: word("aggregate_type"),
        aggregate_id: word("aggregate_id"),
        event_id: id,
        since: moment("since"),
        until: moment("until"),
        attempts_min: spelled["attempts_min"]
            .as_u64()
            .and_then(|it| u32::try_from(it).ok())
            .unwrap_or(0),
        error: word("error"),
    };
    let find = Filters::of(&Actor::new(""), &filter).ok_or_else(bad)?;
    Ok((arguments, find))
}
