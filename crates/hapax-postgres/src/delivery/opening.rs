//! Opening a partition: its epoch is incremented, and what its last owner had in flight becomes
//! due.
//!
//! Both happen in one transaction of two pipelines. A new partition gets the checkpoint at which its
//! destination starts. A caller that does not want to wait is refused
//! if another node owns the partition, or if its row is locked.

use std::mem::take;

use hapax::{
    delivery::{Checkpoint, CheckpointId, Frontier, Opened, positions},
    limits::BLOCKED_KEYS,
    store::StoreError,
};
use tokio_postgres::Row;

use crate::{
    connection::{Link, Ready},
    delivery::settle::Moved,
    error::corrupt,
    outbox::is_refused,
    postgres::Postgres,
    query,
    session::{PipelineError, QueuedStatement, Session},
    value::{Moment, Param, millis, rows},
};

use super::{Claimant, pipeline_failed};

const INTERRUPTED: &str = "the relay ended before the attempt did";

/// The state of a partition when it is opened.
struct StoredPartition {
    epoch: i64,
    checkpoint: Checkpoint,
    written_at: Moment,
    was_disabled: Option<String>,
    newest: CheckpointId,
    /// Whether a sequence is below a value that it has already assigned.
    is_low: bool,
    /// The previous owner, if it was another node. It may survive the attempts that it had in
    /// flight.
    owner: Option<String>,
}

/// The result of an attempt to open a partition.
enum Taken {
    Opened(Opened),
    /// A claimant that does not wait is refused.
    Refused,
    /// Sequences have to be raised first.
    Low,
}

/// Opens a partition; `None` if a caller that does not wait is refused.
pub(super) async fn open(
    store: &Postgres,
    partition: &str,
    claimant: Option<Claimant<'_>>,
) -> Result<Option<Opened>, StoreError> {
    // Of a history that was lost they would say which of the new transactions can be late.
    store.looks().forget();
    for _ in ["as it is", "with sequences that were raised"] {
        let mut session = store.session().await?;
        match take_over(store, &mut session, partition, claimant).await {
            Ok(Taken::Opened(opened)) => {
                session.end();
                return Ok(Some(opened));
            }
            otherwise => {
                session.rollback().await;
                if let Taken::Refused = otherwise? {
                    return Ok(None);
                }
            }
        }
        store.raise_sequences().await?;
    }
    Err(corrupt(format!(
        "{partition} is beyond what was ever written"
    )))
}

async fn take_over(
    store: &Postgres,
    session: &mut Session,
    partition: &str,
    claimant: Option<Claimant<'_>>,
) -> Result<Taken, StoreError> {
    let Some(mut found) = raise_epoch(store, session, partition, claimant).await? else {
        return Ok(Taken::Refused);
    };
    if found.is_low {
        return Ok(Taken::Low);
    }
    let (interrupted, blocked_keys) = interrupt(store, session, partition, &mut found).await?;
    Ok(Taken::Opened(Opened {
        epoch: found.epoch,
        newest: found.newest,
        checkpoint: found.checkpoint,
        blocked_keys,
        interrupted,
        was_disabled: found.was_disabled,
    }))
}

async fn raise_epoch(
    store: &Postgres,
    session: &mut Session,
    partition: &str,
    claimant: Option<Claimant<'_>>,
) -> Result<Option<StoredPartition>, StoreError> {
    let (begin, now, time) = (store.begin_read_committed(), store.now(), store.time());
    let (hold, own) = match claimant {
        None => (query!("delivery/hold_open"), query!("delivery/open")),
        Some(_) => (query!("delivery/hold_take"), query!("delivery/take")),
    };
    let sql = [
        hold,
        own,
        query!("delivery/register"),
        query!("delivery/default_start"),
        query!("delivery/start"),
        query!("delivery/position"),
    ];
    let ready = session.run(async |link| link.ready(sql).await).await?;
    let [hold, own, register, default_start, start, position] = &ready;
    let name: [&dyn Param; 1] = [&partition];
    let named: [&dyn Param; 2] = [&partition, &now];
    let opener: [&dyn Param; 2] = [&partition, &time];
    let (node, lease) = claimant.map_or(("", 0), |it| (it.node, millis(it.lease)));
    let taker: [&dyn Param; 4] = [&partition, &node, &lease, &time];
    let owner: &[&dyn Param] = if claimant.is_some() { &taker } else { &opener };
    let results = session.pipeline_from(Some(&begin), |link: &Link| -> Vec<QueuedStatement<'_>> {
        vec![
            Box::pin(link.rows(hold, &name)),
            Box::pin(link.rows(own, owner)),
            Box::pin(link.rows(register, &named)),
            Box::pin(link.rows(default_start, &name)),
            Box::pin(link.rows(start, &name)),
            Box::pin(link.rows(position, &name)),
        ]
    });
    let completed = match results.await {
        Ok(completed) => completed,
        Err(failed) if claimant.is_some() && is_taken(&failed) => return Ok(None),
        Err(failed) => return Err(pipeline_failed(failed)),
    };
    let missing = || corrupt(format!("partition {partition} is not there"));
    let epoch = completed[2].first().ok_or_else(missing)?.get(0);
    let was_disabled = completed[3].first().ok_or_else(missing)?.get(0);
    let row = completed[6].first().ok_or_else(missing)?;
    let had = |row: &Row| row.get::<_, Option<String>>(1);
    let owner = claimant.and_then(|_| completed[1].first().and_then(had));
    Ok(Some(StoredPartition {
        epoch,
        checkpoint: checkpoint(partition, row)?,
        written_at: row.get("written_at"),
        was_disabled,
        newest: CheckpointId {
            epoch: row.get("checkpoint_epoch"),
            settlement: row.get("checkpoint_settlement"),
            high: row.get("frontier"),
        },
        is_low: row.get("is_low"),
        owner: owner.filter(|owner| owner != node),
    }))
}

/// Whether the partition cannot be taken now: its row is locked, or a live node owns it.
fn is_taken(failed: &PipelineError) -> bool {
    (failed.statement == 1 || failed.statement == 2) && is_refused(&failed.cause)
}

fn checkpoint(partition: &str, row: &Row) -> Result<Checkpoint, StoreError> {
    let set = |column| {
        positions::parse(row.get(column))
            .ok_or_else(|| corrupt(format!("checkpoint of {partition}")))
    };
    Ok(Checkpoint {
        frontier: Frontier {
            high: row.get("frontier"),
            snapshot: row.get::<_, Option<String>>("snapshot").map(Into::into),
        },
        settled: set("settled")?,
        offered: set("offered")?,
    })
}

/// Parks what was on the wire when the last owner ended, and commits.
async fn interrupt(
    store: &Postgres,
    session: &mut Session,
    partition: &str,
    found: &mut StoredPartition,
) -> Result<(u64, Vec<String>), StoreError> {
    let now = store.now();
    let offered: Vec<i64> = take(&mut found.checkpoint.offered).into_iter().collect();
    if !offered.is_empty() {
        // The opening writes a checkpoint.
        (found.newest.epoch, found.newest.settlement) = (found.epoch, 0);
    }
    found.checkpoint.settled.extend(&offered);
    let sql = [
        query!("delivery/interrupt_begun"),
        query!("delivery/interrupt_offered"),
        query!("delivery/checkpoint"),
        query!("delivery/blocked_keys"),
    ];
    let ready: [Ready; 4] = session.run(async |link| link.ready(sql).await).await?;
    let [begun, offers, move_checkpoint, blocked_keys] = &ready;
    let owner = found.owner.take();
    let begun_params: [&dyn Param; 4] = [&partition, &now, &INTERRUPTED, &owner];
    let written_at = found.written_at;
    let offered_params: [&dyn Param; 6] = [
        &partition,
        &offered,
        &now,
        &INTERRUPTED,
        &written_at,
        &owner,
    ];
    let moved = Moved::of(partition, found.epoch, 0, &found.checkpoint, now);
    let moved = moved.params();
    let limit = rows(BLOCKED_KEYS + 1);
    let some: [&dyn Param; 2] = [&partition, &limit];
    store.settings().failpoints.hit("postgres.commit.before");
    let results = session.pipeline(|link: &Link| -> Vec<QueuedStatement<'_>> {
        let mut statements: Vec<QueuedStatement<'_>> = vec![
            Box::pin(link.rows(begun, &begun_params)),
            Box::pin(link.rows(blocked_keys, &some)),
        ];
        if !offered.is_empty() {
            statements.insert(1, Box::pin(link.rows(offers, &offered_params)));
            statements.insert(2, Box::pin(link.rows(move_checkpoint, &moved)));
        }
        statements.push(Box::pin(link.none("COMMIT")));
        statements
    });
    let completed = results.await.map_err(pipeline_failed)?;
    store.settings().failpoints.hit("postgres.commit.after");
    let count = |statement: &[Row]| statement.first().map_or(0, |row| row.get::<_, i64>(0));
    let mut interrupted = count(&completed[0]);
    if !offered.is_empty() {
        interrupted += count(&completed[1]);
    }
    let keys = completed[completed.len() - 2].iter().map(|row| row.get(0));
    Ok((interrupted.unsigned_abs(), keys.collect()))
}
