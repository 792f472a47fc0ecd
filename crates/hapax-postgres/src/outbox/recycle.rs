//! Purge of the outbox: rotation to the next segment, and emptying of old segments that are read.
//!
//! Only events that were moved aside for a delivery are deleted row by row. A segment is emptied
//! with TRUNCATE, which neither an old snapshot nor a writer in another segment delays. If a
//! transaction still uses the segment, the next purge tries again. Each step is a separate
//! transaction, bounded in rows, and a step that fails does not stop the others. The age of a turn
//! is measured by the database's clock and not by those of producers. If a partition lags by a
//! whole rotation, the events that it has not read are parked for it. Events are dropped unread
//! only if they belong to a partition that no relay owns any more.

use hapax::{limits::PURGE_ROWS, store::StoreError, telemetry};
use metrics::counter;
use tokio_postgres::{Row, error::SqlState};

use super::is_refused;
use crate::{
    connection::{Link, QueryError},
    postgres::Postgres,
    query,
    session::QueuedStatement,
    value::{Param, rows},
};

/// Number of rotations per retention: one less than there are segments.
const TURNS: i64 = 7;
/// Events that are parked in one transaction if a partition lags by a whole rotation.
const SPILLED: i32 = 10_000;
/// How long this may take, in milliseconds, before the partition's owner can use it again.
const SPILLING: i64 = 5_000;

/// The results of the steps of a purge.
#[derive(Debug, Default)]
pub(super) struct Tally {
    gone: u64,
    /// The first step that failed, and why.
    failed: Option<(&'static str, StoreError)>,
}

impl Tally {
    /// Counts the rows that a step has removed.
    pub(super) fn count(&mut self, step: &'static str, taken: Result<u64, StoreError>) {
        self.gone += self.pass(step, taken).unwrap_or(0);
    }

    /// The result of a step; `None` if it failed, so that the other steps still run.
    fn pass<T>(&mut self, step: &'static str, taken: Result<T, StoreError>) -> Option<T> {
        let error = match taken {
            Ok(taken) => return Some(taken),
            Err(error) => error,
        };
        counter!(telemetry::OUTBOX_PURGE_FAILURES, "step" => step).increment(1);
        if self.failed.is_none() {
            self.failed = Some((step, error));
        } else {
            warn(step, &error);
        }
        None
    }

    /// The number of removed rows. An error is returned only if no row was removed: a caller that
    /// purges until nothing is left receives it at the end, after everything that could be purged.
    pub(super) fn result(self) -> Result<u64, StoreError> {
        match self.failed {
            Some((_, error)) if self.gone == 0 => Err(error),
            Some((step, error)) => {
                warn(step, &error);
                Ok(self.gone)
            }
            None => Ok(self.gone),
        }
    }
}

fn warn(step: &'static str, error: &StoreError) {
    tracing::warn!(
        step,
        error = error.error_chain(),
        "a step of a purge failed"
    );
}

impl Postgres {
    /// Rotates to the next segment, empties segments that every partition has passed, and deletes a
    /// batch of the rows that belonged to them.
    ///
    /// Only one purge runs at a time. If another one is running, or a destination is being opened,
    /// this one does nothing.
    pub(super) async fn recycle(&self, age: i64, tally: &mut Tally) {
        let time = self.time();
        let rotation_age = age / TURNS;
        let rotation: [&dyn Param; 2] = [&rotation_age, &time];
        let rotated = self.purge_step(query!("outbox/rotate"), &rotation).await;
        if let Some(None) = tally.pass("rotation", rotated) {
            return;
        }
        self.tell_gone(age, tally).await;
        let closed = self.ask(query!("outbox/closed"), &[]).await;
        for row in tally.pass("closed", closed).unwrap_or_default() {
            let emptied = self.empty(row.get(0), age).await;
            tally.count("empty", emptied);
        }
        let due: [&dyn Param; 3] = [&rotation_age, &age, &time];
        let lagging = self.purge_step(query!("outbox/lagging"), &due).await;
        for row in tally.pass("lagging", lagging).flatten().unwrap_or_default() {
            let spilled = self.spill(row.get(0), row.get(1)).await;
            tally.count("spill", spilled);
        }
        let batch = rows(PURGE_ROWS);
        let params: [&dyn Param; 1] = [&batch];
        for (step, sql) in [
            ("ended", query!("outbox/purge_ended")),
            ("kept", query!("outbox/purge")),
        ] {
            let purged = self.purge_step(sql, &params).await;
            tally.count(step, purged.map(|rows| number(rows.as_deref())));
        }
    }

    /// Logs the partitions for which the rotation no longer waits.
    async fn tell_gone(&self, age: i64, tally: &mut Tally) {
        let time = self.time();
        let params: [&dyn Param; 2] = [&age, &time];
        let gone = self.ask(query!("outbox/abandoned"), &params).await;
        for row in tally.pass("gone", gone).unwrap_or_default() {
            let partition: &str = row.get(0);
            tracing::warn!(
                partition,
                "no relay has owned this partition for longer than events are kept: events that it \
                 has not read are deleted; remove its destination, or deliver to it again"
            );
        }
    }

    /// Empties a segment, or moves more of its events aside that are still needed.
    async fn empty(&self, segment: i32, age: i64) -> Result<u64, StoreError> {
        let time = self.time();
        let params: [&dyn Param; 3] = [&segment, &age, &time];
        let emptied = self.purge_step(query!("outbox/empty_segment"), &params);
        let count = number(emptied.await?.as_deref());
        if count > 0 {
            tracing::info!(
                segment,
                events = count,
                "events left a segment of the outbox"
            );
        }
        Ok(count)
    }

    /// Parks the events that a partition has not read in the segment that is needed next.
    async fn spill(&self, segment: i32, partition: &str) -> Result<u64, StoreError> {
        let now = self.now();
        let params: [&dyn Param; 5] = [&segment, &partition, &SPILLED, &SPILLING, &now];
        let spilled = self.purge_step(query!("outbox/spill"), &params);
        let count = number(spilled.await?.as_deref());
        counter!(telemetry::OUTBOX_SPILLED, "destination" => partition.to_owned()).increment(count);
        tracing::warn!(
            partition,
            segment,
            events = count,
            "a destination lags by a whole rotation of the outbox: its unread events are parked"
        );
        Ok(count)
    }

    /// Runs one step of a purge in a separate transaction; `None` if another transaction blocks it.
    pub(super) async fn purge_step(
        &self,
        step: &'static str,
        params: &[&dyn Param],
    ) -> Result<Option<Vec<Row>>, StoreError> {
        let mut session = self.session().await?;
        let sql = [query!("outbox/hold_purge"), step];
        let ready = session.run(async |link| link.ready(sql).await).await?;
        let begin = self.begin_read_committed();
        let [hold, step] = &ready;
        let results =
            session.pipeline_from(Some(&begin), |link: &Link| -> Vec<QueuedStatement<'_>> {
                vec![
                    Box::pin(link.rows(hold, &[])),
                    Box::pin(link.rows(step, params)),
                    Box::pin(link.none("COMMIT")),
                ]
            });
        match results.await {
            Ok(mut completed) => {
                session.end();
                Ok(Some(completed.swap_remove(2)))
            }
            Err(failed) => {
                let is_held =
                    failed.statement == 1 && is_refused(&failed.cause) || is_locked(&failed.cause);
                session.rollback().await;
                if is_held {
                    Ok(None)
                } else {
                    Err(failed.cause.into())
                }
            }
        }
    }
}

/// Whether a lock could not be acquired in time.
fn is_locked(cause: &QueryError) -> bool {
    matches!(cause, QueryError::Failed(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
}

fn number(rows: Option<&[Row]>) -> u64 {
    let row = rows.and_then(<[Row]>::first);
    row.map_or(0, |row| row.get::<_, i64>(0)).unsigned_abs()
}
