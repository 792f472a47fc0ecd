//! The outbox on PostgreSQL: reading events beyond a frontier while others write, and purging
//! events.
//!
//! Events are in eight segments, which are written in rotation. A read is one statement on one
//! segment, which is one snapshot, and takes no lock and writes nothing. Late events are returned
//! before new ones, so that the events of an aggregate keep their order. Many late events are read
//! in several steps, each bounded in rows and bytes. See `frontier` for why no event is missed, and
//! `recycle` for how segments are used again.

mod event;
mod look;
mod past;
mod recycle;
mod raise;
mod segment;

use std::time::Duration;

use hapax::{
    delivery::{Frontier, Shards},
    key::Tenant,
    limits::{LOOKOUT_EVENTS, PURGE_ROWS},
    notify::Sleep,
    store::{Batch, Outbox, Past, Source, StoreError},
};
use tokio_postgres::error::SqlState;

use self::{look::Step, recycle::Tally};
use crate::{
    connection::QueryError,
    frontier::{History, Mark},
    inbox,
    postgres::Postgres,
    query,
    value::{Param, millis, rows},
};

pub(crate) use self::{
    event::{event, shown},
    segment::SEEN,
};

impl Source for Postgres {
    async fn read(
        &self,
        frontier: &Frontier,
        shards: Shards,
        limit: usize,
    ) -> Result<Batch, StoreError> {
        let (batch, _) = self.read_from(frontier, shards, limit).await?;
        Ok(batch)
    }

    async fn read_past(
        &self,
        head: &Frontier,
        beyond: i64,
        shards: Shards,
        except: &[Option<Tenant>],
        limit: usize,
    ) -> Result<Past, StoreError> {
        self.look_past(head, beyond, shards, except, limit).await
    }

    async fn shards_after(&self, frontier: &Frontier) -> Result<(Shards, Frontier), StoreError> {
        let read = self.read_from(frontier, Shards::ALL, LOOKOUT_EVENTS);
        let (batch, found) = read.await?;
        let shards = match batch.events.len() {
            0 if batch.frontier.high <= frontier.high => Shards::NONE,
            1..LOOKOUT_EVENTS => found,
            // The frontier has moved to another segment, or there may be many events.
            _ => Shards::ALL,
        };
        Ok((shards, batch.frontier))
    }

    async fn fall_asleep(&self) -> Result<Option<Sleep>, StoreError> {
        self.listener().sleep(self.settings()).await
    }
}

impl Postgres {
    /// Reads events, and returns their shards too.
    async fn read_from(
        &self,
        frontier: &Frontier,
        shards: Shards,
        limit: usize,
    ) -> Result<(Batch, Shards), StoreError> {
        let only = look::shards(shards);
        let mut mark = self.looks().newest(frontier, shards)?.of_shards(shards);
        loop {
            let step = match &mark.late {
                Some(late) => self.catch_up(&mark, late, only.as_deref(), limit).await?,
                None => self.look(&mark, only.as_deref(), limit).await?,
            };
            let (events, found, is_end) = match step {
                Step::Other(other, history) => {
                    let rewritten = self.rewrite(frontier, other, &history).await?;
                    mark = rewritten.of_shards(shards);
                    continue;
                }
                Step::Low(drawn, history) => {
                    self.raise(frontier, drawn, &history).await?;
                    mark = Mark::of(frontier)?.of_shards(shards);
                    continue;
                }
                Step::Read {
                    events,
                    shards: found,
                    mark: behind,
                    is_end,
                } => {
                    mark = behind;
                    (events, found, is_end)
                }
            };
            if is_end && events.is_empty() {
                self.looks().in_vain(frontier, shards, &mark);
            }
            if is_end || !events.is_empty() {
                let frontier = mark.frontier();
                return Ok((Batch { events, frontier }, found));
            }
        }
    }

    /// The mark from which to continue if `frontier` belongs to another history than the database.
    ///
    /// A relay must not rely on what it read in a history that was lost. Its frontier is valid only
    /// if this database contains it.
    async fn rewrite(
        &self,
        frontier: &Frontier,
        other: History,
        history: &str,
    ) -> Result<Mark, StoreError> {
        if !self.stands(frontier, history).await? {
            return Err(StoreError::SetBack {
                what: format!("its history is now {history}, which does not contain what was read"),
            });
        }
        // This history may have assigned ids a second time, until they passed those that were read.
        let is_low = self.ask(query!("outbox/is_low"), &[]).await?;
        if is_low.first().is_some_and(|row| row.get(0)) {
            self.raise_sequences().await?;
        }
        let mark = Mark::of(frontier)?;
        if other == History::Foreign {
            tracing::warn!(
                history,
                "the database was moved or restored: late events are searched again"
            );
            return Ok(mark.restored().on(history));
        }
        Ok(mark.on(history))
    }

    /// Raises the sequence of events, whose value `drawn` is below `frontier`.
    ///
    /// # Errors
    /// Fails with `SetBack` if this database does not contain the frontier: then the database was
    /// set back after the read.
    async fn raise(
        &self,
        frontier: &Frontier,
        drawn: i64,
        history: &str,
    ) -> Result<(), StoreError> {
        if self.stands(frontier, history).await? {
            return self.raise_sequences().await;
        }
        let high = frontier.high;
        let what = format!("its sequence of events is at {drawn}, but was read up to {high}");
        Err(StoreError::SetBack { what })
    }

    /// Whether this database, which is in `history`, contains the frontier.
    async fn stands(&self, frontier: &Frontier, history: &str) -> Result<bool, StoreError> {
        self.looks().forget();
        // Some connections may lead to a server on which the other history continues.
        self.reconnect();
        let snapshot = frontier.snapshot.as_deref();
        let params: [&dyn Param; 3] = [&frontier.high, &snapshot, &history];
        let stands = self.ask(query!("outbox/stands"), &params).await?;
        Ok(stands.first().is_some_and(|row| row.get(0)))
    }
}

impl Outbox for Postgres {
    async fn purge_events(
        &self,
        retention: Duration,
        inbox_retention: Duration,
    ) -> Result<u64, StoreError> {
        let mut tally = Tally::default();
        self.recycle(age(retention), &mut tally).await;
        let time = self.time();
        let age = age(inbox_retention);
        let params: [&dyn Param; 3] = [&time, &age, &rows(PURGE_ROWS)];
        let messages = self.ask(query!("inbox/purge"), &params).await;
        tally.count("inbox", messages.map(|rows| inbox::purged(&rows)));
        tally.result()
    }
}

/// A duration in milliseconds, limited to what the database can add to or subtract from the current
/// time.
pub(crate) fn age(retention: Duration) -> i64 {
    const CENTURIES: i64 = 1_000 * 365 * 24 * 3_600 * 1_000;
    millis(retention).min(CENTURIES)
}

/// Whether a statement divided by zero, which is how the statements of this crate refuse.
pub(crate) fn is_refused(cause: &QueryError) -> bool {
    matches!(cause, QueryError::Failed(error) if error.code() == Some(&SqlState::DIVISION_BY_ZERO))
}
