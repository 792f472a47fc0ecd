//! Deliveries: where a destination starts, its owner, its checkpoint, and its parked deliveries.
//!
//! If all deliveries succeed, a destination has a single row, its checkpoint. Only a delivery that
//! is scheduled, retrying, blocked or dead has a separate row. Opening a destination fences the
//! previous owner, and makes the deliveries due that it had offered. Finished rows stay until
//! retention deletes them.

pub(crate) mod settle;
pub(crate) mod dead_letter;
pub(crate) mod start;
mod due;
mod lease;
pub(crate) mod arrival;
pub(crate) mod sample;

use std::{collections::HashSet, sync::Weak, time::Duration};

use bytes::Bytes;
use hapax::{
    Timestamp,
    dead_letter::DeadLetter,
    delivery::{
        Attempt, AttemptOutcome, Backlog, Checkpoint, CheckpointId, Frontier, KnownDestinations,
        Membership, Opened, OperatorSetting, Parked, ParkedState, Settlement, Start, positions,
    },
    limits::BLOCKED_KEYS,
    store::{DeadLetters, Partitions, Settlements, Starts, StoreError, Summaries},
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{
    error::{corrupt, store_error},
    operational::Emitter,
    query,
    sqlite::Sqlite,
    value::rows,
    writer::WriterContext,
};

use due::DueDeliveries;
use sample::DueSample;

/// The largest backlog that is counted event by event; a larger one is a difference of positions.
const COUNTED: i64 = 10_000;
/// Events that are examined to find when the first of them became due.
const SAMPLED: i64 = 1_000;
const INTERRUPTED: &str = "the relay ended before the attempt did";

impl Starts for Sqlite {
    async fn record_start(&self, destination: &str, start: Start) -> Result<bool, StoreError> {
        let name = destination.to_owned();
        // Every start of a relay asks, and only the first one writes.
        let may_start = self.read(move |conn| start::may_start(conn, &name)).await?;
        if !may_start {
            return Ok(false);
        }
        let destination = destination.to_owned();
        let record = move |ctx: &mut WriterContext| {
            start::record(&ctx.conn, &destination, start, ctx.now()).map_err(store_error)
        };
        self.submit(record).await
    }
}

impl Partitions for Sqlite {
    async fn open(&self, destination: &str) -> Result<Opened, StoreError> {
        let destination = destination.to_owned();
        self.submit(move |ctx| open(ctx, &destination)).await
    }

    async fn take(
        &self,
        partition: &str,
        node: &str,
        lease: Duration,
    ) -> Result<Option<Opened>, StoreError> {
        let (partition, node) = (partition.to_owned(), node.to_owned());
        self.submit(move |ctx| lease::take(ctx, &partition, &node, lease))
            .await
    }

    async fn heartbeat(
        &self,
        node: &str,
        knows: &[String],
        lease: Duration,
    ) -> Result<Membership, StoreError> {
        let (node, knows) = (node.to_owned(), knows.join("\n"));
        self.submit(move |ctx| lease::heartbeat(ctx, &node, &knows, lease))
            .await
    }

    fn follow(&self, known: Weak<KnownDestinations>) {
        self.follow_relay(known);
    }

    async fn operator_settings(&self, since: i64) -> Result<Vec<OperatorSetting>, StoreError> {
        self.read(move |conn| operator_settings(conn, since)).await
    }

    async fn give_up(&self, partition: &str, epoch: i64) -> Result<(), StoreError> {
        let partition = partition.to_owned();
        self.submit(move |ctx| lease::give_up(ctx, &partition, epoch))
            .await
    }

    async fn leave(&self, node: &str) -> Result<(), StoreError> {
        let node = node.to_owned();
        self.submit(move |ctx| lease::leave(ctx, &node).map_err(store_error))
            .await
    }

    async fn outlived(
        &self,
        partition: &str,
        positions: &[i64],
    ) -> Result<Vec<(i64, u32)>, StoreError> {
        let (partition, positions) = (partition.to_owned(), positions.to_owned());
        self.read(move |conn| lease::outlived(conn, &partition, &positions))
            .await
    }
}

impl Settlements for Sqlite {
    async fn ignore_keys(
        &self,
        partition: &str,
        epoch: i64,
        after: i64,
        limit: usize,
    ) -> Result<Option<i64>, StoreError> {
        let partition = partition.to_owned();
        let ignore = move |ctx: &mut WriterContext| {
            let ignored = due::ignore_keys(ctx, &partition, epoch, after, limit);
            ignored.map_err(store_error)
        };
        self.submit(ignore).await
    }

    async fn settle(&self, settlement: Settlement) -> Result<Vec<String>, StoreError> {
        let emitter = Emitter::of(self);
        self.submit(move |ctx| settle::settle(ctx, &settlement, &emitter))
            .await
    }

    async fn blocked_keys(&self, partition: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let partition = partition.to_owned();
        self.read(move |conn| blocked_keys(conn, &partition, limit))
            .await
    }

    async fn blocked(&self, partition: &str, keys: &[String]) -> Result<Vec<String>, StoreError> {
        let (partition, mut keys) = (partition.to_owned(), keys.to_vec());
        let look = move |conn: &Connection| {
            let mut is_held = conn.prepare_cached(query!("delivery/is_held"))?;
            let mut failed = None;
            keys.retain(|key| {
                let held = is_held.query_row([&partition, key], |row| row.get(0));
                held.unwrap_or_else(|error| {
                    failed = Some(error);
                    false
                })
            });
            failed.map_or(Ok(keys), Err)
        };
        self.read(look).await
    }

    async fn due(
        &self,
        destination: &str,
        except: &[i64],
        limit: usize,
        behind: usize,
    ) -> Result<Vec<Parked>, StoreError> {
        self.heed_clock().await?;
        let destination = destination.to_owned();
        let except: HashSet<i64> = except.iter().copied().collect();
        let (now, keyring) = (self.clock().now(), self.keyring().clone());
        let look = move |conn: &Connection| {
            let mut found = DueDeliveries::new(except, limit, keyring);
            found.read(conn, &destination, now, behind)?;
            found.end()
        };
        self.look(look).await
    }

    async fn next_due(&self, destination: &str) -> Result<Option<Timestamp>, StoreError> {
        let destination = destination.to_owned();
        let next = self.read(move |conn| next_due(conn, &destination));
        Ok(next.await?.map(Timestamp::from_millis))
    }

    async fn backlog(&self, destination: &str) -> Result<Backlog, StoreError> {
        let (destination, now) = (destination.to_owned(), self.clock().now());
        self.look(move |conn| backlog(conn, &destination, now))
            .await
    }
}

impl Summaries for Sqlite {
    async fn due_of(&self, partitions: &[String]) -> Result<Vec<String>, StoreError> {
        self.heed_clock().await?;
        let (partitions, now) = (partitions.to_vec(), self.clock().now().as_millis());
        self.read(move |conn| {
            let mut due = Vec::new();
            for partition in partitions {
                if next_due(conn, &partition)?.is_some_and(|at| at <= now) {
                    due.push(partition);
                }
            }
            Ok(due)
        })
        .await
    }
}

/// When the next parked delivery of a partition is due.
fn next_due(conn: &Connection, partition: &str) -> rusqlite::Result<Option<i64>> {
    let mut statement = conn.prepare_cached(query!("delivery/next_due"))?;
    statement
        .query_row([partition], |row| row.get(0))
        .optional()
}

impl DeadLetters for Sqlite {
    async fn attempts(&self, partition: &str, position: i64) -> Result<Vec<Attempt>, StoreError> {
        let partition = partition.to_owned();
        self.look(move |conn| dead_letter::attempts(conn, &partition, position))
            .await
    }

    async fn dead_letters(
        &self,
        destination: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let (destination, keyring) = (destination.to_owned(), self.keyring().clone());
        self.look(move |conn| dead_letter::list(conn, &destination, after, limit, &keyring))
            .await
    }

    async fn replay(&self, destination: &str, position: i64) -> Result<bool, StoreError> {
        let destination = destination.to_owned();
        let replay = move |ctx: &mut WriterContext| {
            dead_letter::replay(ctx, &destination, position).map_err(store_error)
        };
        self.submit(replay).await
    }

    async fn discard(
        &self,
        destination: &str,
        position: i64,
        reason: &str,
    ) -> Result<bool, StoreError> {
        let (destination, reason) = (destination.to_owned(), reason.to_owned());
        let discard = move |ctx: &mut WriterContext| {
            dead_letter::discard(ctx, &destination, position, &reason).map_err(store_error)
        };
        self.submit(discard).await
    }
}

/// The name of a state in its row.
pub(crate) fn word(state: ParkedState) -> &'static str {
    match state {
        ParkedState::Scheduled => "scheduled",
        ParkedState::Retrying => "retrying",
        ParkedState::Blocked => "blocked",
        ParkedState::Dead => "dead",
    }
}

/// Appends attempts to the log.
pub(crate) fn log(
    conn: &Connection,
    destination: &str,
    attempts: &[Attempt],
) -> rusqlite::Result<()> {
    let mut log = conn.prepare_cached(query!("delivery/attempt"))?;
    for attempt in attempts {
        log.execute(params![
            destination,
            attempt.position,
            attempt.number,
            attempt.started_at.as_millis(),
            i64::try_from(attempt.duration.as_millis()).unwrap_or(i64::MAX),
            attempt.outcome.as_str(),
            attempt.status,
            attempt.error,
            &*attempt.response_head,
        ])?;
    }
    Ok(())
}

fn open(ctx: &WriterContext, destination: &str) -> Result<Opened, StoreError> {
    open_after(ctx, destination, None)
}

/// Opens a partition. Attempts that it interrupts are recorded as those of `owner`, the previous
/// node.
fn open_after(
    ctx: &WriterContext,
    destination: &str,
    owner: Option<&str>,
) -> Result<Opened, StoreError> {
    let now = ctx.now().as_millis();
    let was_disabled = disabled_reason(&ctx.conn, destination).map_err(store_error)?;
    let take = || {
        let conn = &ctx.conn;
        conn.prepare_cached(query!("delivery/register"))?
            .execute(params![destination, now])?;
        let mut open = conn.prepare_cached(query!("delivery/open"))?;
        open.query_row(params![destination, now], |row| {
            let sets: (String, String) = (row.get("settled")?, row.get("offered")?);
            let written_at = row.get("written_at")?;
            Ok((row.get("epoch")?, row.get("frontier")?, sets, written_at))
        })
    };
    let (epoch, high, (settled, offered), written_at) = take().map_err(store_error)?;
    let read = |set: &str| {
        positions::parse(set).ok_or_else(|| corrupt(format!("checkpoint of {destination}")))
    };
    let mut checkpoint = Checkpoint {
        frontier: Frontier {
            high,
            snapshot: None,
        },
        settled: read(&settled)?,
        offered: read(&offered)?,
    };
    let mut interrupt = || {
        let mut cut_off = interrupt_begun(&ctx.conn, destination, now)?;
        cut_off.extend(interrupt_offered(
            &ctx.conn,
            destination,
            &mut checkpoint,
            now,
            written_at,
        )?);
        if let Some(owner) = owner {
            lease::interrupt_owner(&ctx.conn, destination, &cut_off, owner)?;
        }
        Ok(cut_off.len() as u64)
    };
    let interrupted = interrupt().map_err(store_error)?;
    let blocked_keys = blocked_keys(&ctx.conn, destination, BLOCKED_KEYS + 1);
    let blocked_keys = blocked_keys.map_err(store_error)?;
    Ok(Opened {
        epoch,
        newest: CheckpointId {
            epoch,
            settlement: 0,
            high,
        },
        checkpoint,
        blocked_keys,
        interrupted,
        was_disabled,
    })
}

/// Parks the events whose first attempt was unfinished when the last owner ended. Returns these
/// attempts.
fn interrupt_offered(
    conn: &Connection,
    destination: &str,
    checkpoint: &mut Checkpoint,
    now: i64,
    written_at: i64,
) -> rusqlite::Result<Vec<(i64, u32)>> {
    let mut cut_off = Vec::new();
    if checkpoint.offered.is_empty() {
        return Ok(cut_off);
    }
    let mut park = conn.prepare_cached(query!("delivery/interrupt_offered"))?;
    for position in std::mem::take(&mut checkpoint.offered) {
        if park.execute(params![destination, position, now, INTERRUPTED])? == 1 {
            log(conn, destination, &[interrupted(position, 1, written_at)])?;
            cut_off.push((position, 1));
        }
        checkpoint.settled.insert(position);
    }
    let settled = positions::write(&checkpoint.settled);
    let mut write = conn.prepare_cached(query!("delivery/checkpoint"))?;
    write.execute(params![
        destination,
        checkpoint.frontier.high,
        settled,
        "",
        now,
        0
    ])?;
    Ok(cut_off)
}

/// Makes the parked deliveries due whose attempt was unfinished when the last owner ended. Returns
/// these attempts.
fn interrupt_begun(
    conn: &Connection,
    destination: &str,
    now: i64,
) -> rusqlite::Result<Vec<(i64, u32)>> {
    let mut begun = conn.prepare_cached(query!("delivery/begun"))?;
    let begun = begun.query_map([destination], |row| {
        Ok((
            row.get("position")?,
            row.get("attempt")?,
            row.get("begun_at")?,
        ))
    })?;
    let begun: Vec<(i64, u32, i64)> = begun.collect::<Result<_, _>>()?;
    let mut cut_off = Vec::with_capacity(begun.len());
    for (position, number, begun_at) in begun {
        cut_off.push((position, number));
        conn.prepare_cached(query!("delivery/interrupt_begun"))?
            .execute(params![destination, position, now, INTERRUPTED])?;
        log(
            conn,
            destination,
            &[interrupted(position, number, begun_at)],
        )?;
    }
    Ok(cut_off)
}

fn interrupted(position: i64, number: u32, started_at: i64) -> Attempt {
    Attempt {
        position,
        number,
        started_at: Timestamp::from_millis(started_at),
        duration: Duration::ZERO,
        outcome: AttemptOutcome::Interrupted,
        status: None,
        error: Some(INTERRUPTED.to_owned()),
        response_head: Bytes::new(),
    }
}

fn operator_settings(conn: &Connection, since: i64) -> rusqlite::Result<Vec<OperatorSetting>> {
    let setting = |row: &Row<'_>| {
        let spec: Option<String> = row.get("spec")?;
        let spec: Option<serde_json::Value> = spec.and_then(|it| serde_json::from_str(&it).ok());
        let is_set_paused = spec.is_some_and(|spec| spec["paused"] == true);
        Ok(OperatorSetting {
            destination: row.get("name")?,
            version: row.get("version")?,
            is_paused: row.get::<_, bool>("is_paused")? || is_set_paused,
            is_removed: row.get("is_removed")?,
        })
    };
    let mut changes = conn.prepare_cached(query!("delivery/operator_settings"))?;
    changes.query_map([since], setting)?.collect()
}

fn blocked_keys(conn: &Connection, partition: &str, limit: usize) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare_cached(query!("delivery/blocked_keys"))?;
    statement
        .query_map(params![partition, rows(limit)], |row| row.get(0))?
        .collect()
}

fn disabled_reason(conn: &Connection, destination: &str) -> rusqlite::Result<Option<String>> {
    let mut statement = conn.prepare_cached(query!("delivery/disabled_reason"))?;
    statement
        .query_row([destination], |row| row.get(0))
        .optional()
}

/// Reads the backlog of a partition.
pub(crate) fn backlog(
    conn: &Connection,
    destination: &str,
    now: Timestamp,
) -> Result<Backlog, StoreError> {
    let found = find_checkpoint(conn, destination).map_err(store_error)?;
    let newest = found.as_ref().map(|(newest, _)| *newest);
    let (high, settled) = if let Some((checkpoint, settled)) = found {
        (checkpoint.high, settled)
    } else {
        let high = start::start_of(conn, destination).map_err(store_error)?;
        (high, String::new())
    };
    let settled = positions::parse(&settled)
        .ok_or_else(|| corrupt(format!("checkpoint of {destination}")))?;
    let stand = || {
        let parked: i64 = conn
            .prepare_cached(query!("delivery/count_parked"))?
            .query_row([destination], |row| row.get(0))?;
        let dead: i64 = conn
            .prepare_cached(query!("delivery/count_dead"))?
            .query_row([destination], |row| row.get(0))?;
        let beyond = count_beyond(conn, high)?.saturating_sub(settled.len() as u64);
        let oldest_parked: Option<i64> = conn
            .prepare_cached(query!("delivery/oldest_parked"))?
            .query_row(params![destination, now.as_millis()], |row| row.get(0))?;
        let oldest_parked = oldest_parked.map(Timestamp::from_millis);
        let has_settled = |position: i64| settled.contains(&position);
        let oldest_beyond = oldest_beyond(conn, high, now, has_settled)?;
        Ok(Backlog {
            events: beyond + parked.unsigned_abs(),
            parked: parked.unsigned_abs(),
            dead: dead.unsigned_abs(),
            oldest_at: oldest_parked.into_iter().chain(oldest_beyond).min(),
            newest,
        })
    };
    stand().map_err(store_error)
}

fn find_checkpoint(
    conn: &Connection,
    destination: &str,
) -> rusqlite::Result<Option<(CheckpointId, String)>> {
    let mut statement = conn.prepare_cached(query!("delivery/find_checkpoint"))?;
    let found = |row: &Row<'_>| {
        let newest = CheckpointId {
            epoch: row.get("epoch")?,
            settlement: row.get("settlement")?,
            high: row.get("frontier")?,
        };
        Ok((newest, row.get("settled")?))
    };
    statement.query_row([destination], found).optional()
}

/// Counts the events after a frontier: exactly if there are few; otherwise skipped ids count too.
fn count_beyond(conn: &Connection, high: i64) -> rusqlite::Result<u64> {
    let mut count = conn.prepare_cached(query!("outbox/count_beyond"))?;
    let counted: i64 = count.query_row(params![high, COUNTED], |row| row.get(0))?;
    if counted < COUNTED {
        return Ok(counted.unsigned_abs());
    }
    let mut last = conn.prepare_cached(query!("outbox/last"))?;
    let last: i64 = last.query_row([], |row| row.get(0))?;
    Ok(last.saturating_sub(high).unsigned_abs())
}

/// When the first event after a frontier became due, among the first [`SAMPLED`].
fn oldest_beyond(
    conn: &Connection,
    high: i64,
    now: Timestamp,
    has_settled: impl Fn(i64) -> bool,
) -> rusqlite::Result<Option<Timestamp>> {
    let mut ages = conn.prepare_cached(query!("outbox/ages_beyond"))?;
    let mut rows = ages.query(params![high, SAMPLED])?;
    let mut sample = DueSample::default();
    while let Some(row) = rows.next()? {
        let is_settled = has_settled(row.get(0)?);
        sample.add(is_settled, row.get("created_at")?, row.get("due_at")?);
    }
    Ok(sample.oldest(SAMPLED, now))
}
