//! How the ring goes round: it is turned on, and segments that are read and old are emptied.
//!
//! Nothing is deleted row by row but what was kept apart for a delivery. A segment is emptied with
//! TRUNCATE, which neither a snapshot that somebody keeps nor a writer in another segment holds up;
//! whoever is at work in it has it tried again the next time. Each step is a transaction of its own,
//! bounded in rows, and one that fails holds up no other. How old a turn is the database says, and
//! no producer. Where one part has not read for a whole turn of the ring, what it has not read is
//! parked for it: nothing is dropped unread but what belongs to a part that nobody carries any more.

use hapax::{limits::PURGE_ROWS, store::StoreError, telemetry};
use metrics::counter;
use tokio_postgres::{Row, error::SqlState};

use super::{begin, is_refused, rows};
use crate::{
    connection::{Flight, Link},
    postgres::Postgres,
    query,
    session::{Leg, Session},
    value::Param,
};

/// In how many turns of the ring a retention goes by: one segment less than there are.
const TURNS: i64 = 7;
/// Events that are parked in one transaction when a part lags a whole ring.
const SPILLED: i32 = 10_000;
/// For how long that goes on, in milliseconds, before the part's owner may have it again.
const SPILLING: i64 = 5_000;

/// What the steps of a purge came to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    gone: u64,
    /// The first step that failed, and why.
    failed: Option<(&'static str, StoreError)>,
}

impl Tally {
    /// Counts what a step did away with.
    pub(super) fn count(&mut self, step: &'static str, taken: Result<u64, StoreError>) {
        self.gone += self.pass(step, taken).unwrap_or(0);
    }

    /// What a step came to, unless it failed: that is no reason not to take the others.
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

    /// How many rows went. A failure is said where nothing did: whoever purges until nothing is
    /// left to purge hears of it in the end, and has done what could be done.
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
    /// Turns the ring, empties what is passed, and forgets a batch of what belonged to it.
    ///
    /// One purge at a time: another one that is running, and a destination that is being opened,
    /// have it do nothing.
    pub(super) async fn recycle(&self, age: i64, tally: &mut Tally) {
        let time = self.time();
        let turn_age = age / TURNS;
        let turn: [&dyn Param; 2] = [&turn_age, &time];
        let turned = self.purge_step(query!("outbox/turn_on"), &turn).await;
        if let Some(None) = tally.pass("turn", turned) {
            return;
        }
        self.tell_gone(age, tally).await;
        let closed = self.ask(query!("outbox/closed"), &[]).await;
        for row in tally.pass("closed", closed).unwrap_or_default() {
            let emptied = self.empty(row.get(0), age).await;
            tally.count("empty", emptied);
        }
        let due: [&dyn Param; 3] = [&turn_age, &age, &time];
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

    /// Says which parts the ring waits for no longer.
    async fn tell_gone(&self, age: i64, tally: &mut Tally) {
        let time = self.time();
        let params: [&dyn Param; 2] = [&age, &time];
        let gone = self.ask(query!("outbox/gone"), &params).await;
        for row in tally.pass("gone", gone).unwrap_or_default() {
            let part: &str = row.get(0);
            tracing::warn!(
                part,
                "nobody has carried this part of the outbox for longer than events are kept: what \
                 it has not read goes unread; remove its destination, or carry it again"
            );
        }
    }

    /// Empties a segment, or takes more of what is still needed out of it.
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

    /// Parks what a part has not read of the segment that the ring waits for.
    async fn spill(&self, segment: i32, part: &str) -> Result<u64, StoreError> {
        let now = self.now();
        let params: [&dyn Param; 5] = [&segment, &part, &SPILLED, &SPILLING, &now];
        let spilled = self.purge_step(query!("outbox/spill"), &params);
        let count = number(spilled.await?.as_deref());
        counter!(telemetry::OUTBOX_SPILLED, "destination" => part.to_owned()).increment(count);
        tracing::warn!(
            part,
            segment,
            events = count,
            "a destination lags a whole ring of the outbox: what it has not read is parked"
        );
        Ok(count)
    }

    /// Runs one step of a purge in a transaction of its own; `None` when somebody is in its way.
    pub(super) async fn purge_step(
        &self,
        step: &'static str,
        params: &[&dyn Param],
    ) -> Result<Option<Vec<Row>>, StoreError> {
        let mut session = Session::open(self).await?;
        let sql = [query!("outbox/hold_purge"), step];
        let ready = session.run(async |link| link.ready(sql).await).await?;
        let begin = begin(self);
        let [hold, step] = &ready;
        let flown = session.fly(|link: &Link| -> Vec<Leg<'_>> {
            vec![
                Box::pin(link.none(&begin)),
                Box::pin(link.rows(hold, &[])),
                Box::pin(link.rows(step, params)),
                Box::pin(link.none("COMMIT")),
            ]
        });
        match flown.await {
            Ok(mut landed) => {
                session.end();
                Ok(Some(landed.swap_remove(2)))
            }
            Err(crash) => {
                let is_held = crash.leg == 1 && is_refused(&crash.cause) || is_locked(&crash.cause);
                session.rollback().await;
                if is_held {
                    Ok(None)
                } else {
                    Err(crash.cause.into())
                }
            }
        }
    }
}

/// Whether a lock was not to be had in time.
fn is_locked(cause: &Flight) -> bool {
    matches!(cause, Flight::Failed(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
}

fn number(rows: Option<&[Row]>) -> u64 {
    let row = rows.and_then(<[Row]>::first);
    row.map_or(0, |row| row.get::<_, i64>(0)).unsigned_abs()
}
