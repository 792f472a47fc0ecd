//! How the ring goes round: it is turned on, and segments that are read and old are emptied.
//!
//! Nothing is deleted row by row but what was kept apart for a delivery. A segment is emptied with
//! TRUNCATE, which neither a snapshot that somebody keeps nor a writer in another segment holds up;
//! whoever is at work in it has it tried again the next time. Each step is a transaction of its own,
//! and the next purge goes on wherever the last one ended. Where one part has not read for a whole
//! turn of the ring, what it has not read is parked for it: nothing is dropped unread.

use hapax::{Timestamp, limits::PURGE_ROWS, store::StoreError, telemetry};
use metrics::counter;
use tokio_postgres::{Row, error::SqlState};

use super::{begin, is_refused, rows};
use crate::{
    connection::{Flight, Link},
    postgres::Postgres,
    query,
    session::{Leg, Session},
    value::{Moment, Param},
};

/// In how many turns of the ring a retention goes by: one segment less than there are.
const TURNS: i64 = 7;
/// Events that are parked in one transaction when a part lags a whole ring.
const SPILLED: i32 = 10_000;

impl Postgres {
    /// Turns the ring, empties what is passed, and forgets a batch of what belonged to it.
    ///
    /// One purge at a time: another one that is running, and a destination that is being opened,
    /// have it do nothing.
    pub(super) async fn recycle(&self, age: i64) -> Result<u64, StoreError> {
        let now = self.database_clock().now();
        let before = |age: i64| Moment(Timestamp::from_millis(now.as_millis().saturating_sub(age)));
        let (first_before, written_before) = (before(age / TURNS), before(age));
        let now = Moment(now);
        let turn: [&dyn Param; 2] = [&first_before, &now];
        if self
            .purge_step(query!("outbox/turn_on"), &turn)
            .await?
            .is_none()
        {
            return Ok(0);
        }
        let mut gone = 0;
        for row in self.ask(query!("outbox/closed"), &[]).await? {
            let segment: i32 = row.get(0);
            let params: [&dyn Param; 3] = [&segment, &written_before, &now];
            let emptied = self.purge_step(query!("outbox/empty_segment"), &params);
            let count = number(emptied.await?.as_deref());
            if count > 0 {
                tracing::info!(
                    segment,
                    events = count,
                    "a segment of the outbox was emptied"
                );
            }
            gone += count;
        }
        let due: [&dyn Param; 2] = [&first_before, &written_before];
        let lagging = self.purge_step(query!("outbox/lagging"), &due).await?;
        for row in lagging.unwrap_or_default() {
            gone += self.spill(row.get(0), row.get(1), now).await?;
        }
        let batch = rows(PURGE_ROWS);
        let ended: [&dyn Param; 1] = [&batch];
        let ended = self.purge_step(query!("outbox/purge_ended"), &ended);
        gone += number(ended.await?.as_deref());
        let kept: [&dyn Param; 2] = [&written_before, &batch];
        let kept = self.purge_step(query!("outbox/purge"), &kept);
        gone += number(kept.await?.as_deref());
        Ok(gone)
    }

    /// Parks what a part has not read of the segment that the ring waits for.
    async fn spill(&self, segment: i32, part: &str, now: Moment) -> Result<u64, StoreError> {
        let params: [&dyn Param; 4] = [&segment, &part, &SPILLED, &now];
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
    async fn purge_step(
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
