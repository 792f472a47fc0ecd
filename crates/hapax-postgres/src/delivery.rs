//! Deliveries: where a destination starts, the owner of each partition, its checkpoint, and its
//! parked deliveries.
//!
//! If all deliveries succeed, a settlement is one row in the log of checkpoints, and no event has a
//! row of its own. Only late, failing, blocked and dead deliveries have one. Every change of
//! deliveries first locks the lease row of the partition, so that no two changes deadlock. Opening
//! a partition fences the previous owner and makes due what that owner had in flight. Finished rows
//! are kept until retention deletes them.

pub(crate) mod settle;
pub(crate) mod dead_letter;
pub(crate) mod start;
mod opening;
mod lease;
pub(crate) mod sweep;
mod backlog;

use std::time::Duration;

use hapax::{
    Timestamp,
    dead_letter::DeadLetter,
    delivery::{
        Attempt, Backlog, Membership, Opened, OperatorSetting, Parked, ParkedState, Settlement,
        Start,
    },
    keyring::Keyring,
    limits::READ_BYTES,
    store::{
        DeadLetters, Partitions, Settlements, Starts, StoreError, Summaries, until_unreadable,
    },
};
use tokio_postgres::Row;

use crate::{
    error::corrupt,
    outbox,
    postgres::Postgres,
    query,
    session::PipelineError,
    value::{Moment, Param, rows},
};

/// The node that wants a partition, and how old the last heartbeat of the current owner may be.
#[derive(Clone, Copy, Debug)]
struct Claimant<'a> {
    node: &'a str,
    lease: Duration,
}

impl Starts for Postgres {
    async fn record_start(&self, destination: &str, start: Start) -> Result<bool, StoreError> {
        start::record(self, destination, start).await
    }
}

impl Partitions for Postgres {
    async fn open(&self, destination: &str) -> Result<Opened, StoreError> {
        let opened = opening::open(self, destination, None).await?;
        opened.ok_or_else(|| corrupt(format!("partition {destination} is refused to nobody")))
    }

    async fn take(
        &self,
        partition: &str,
        node: &str,
        lease: Duration,
    ) -> Result<Option<Opened>, StoreError> {
        opening::open(self, partition, Some(Claimant { node, lease })).await
    }

    async fn heartbeat(
        &self,
        node: &str,
        knows: &[String],
        lease: Duration,
    ) -> Result<Membership, StoreError> {
        lease::heartbeat(self, node, knows, lease).await
    }

    async fn operator_settings(&self, since: i64) -> Result<Vec<OperatorSetting>, StoreError> {
        let found = self
            .ask(query!("delivery/operator_settings"), &[&since])
            .await?;
        let setting = |row: &Row| OperatorSetting {
            destination: row.get("name"),
            version: row.get("version"),
            is_paused: row.get("is_paused"),
            is_removed: row.get("is_removed"),
        };
        Ok(found.iter().map(setting).collect())
    }

    async fn give_up(&self, partition: &str, epoch: i64) -> Result<(), StoreError> {
        lease::give_up(self, partition, epoch).await
    }

    async fn leave(&self, node: &str) -> Result<(), StoreError> {
        lease::leave(self, node).await
    }

    async fn outlived(
        &self,
        partition: &str,
        positions: &[i64],
    ) -> Result<Vec<(i64, u32)>, StoreError> {
        let params: [&dyn Param; 2] = [&partition, &positions];
        let rows = self.ask(query!("delivery/outlived"), &params).await?;
        let count = |row: &Row| u32::try_from(row.get::<_, i64>(1)).unwrap_or(u32::MAX);
        Ok(rows.iter().map(|row| (row.get(0), count(row))).collect())
    }
}

impl Settlements for Postgres {
    async fn ignore_keys(
        &self,
        partition: &str,
        epoch: i64,
        after: i64,
        limit: usize,
    ) -> Result<Option<i64>, StoreError> {
        let (now, limit) = (self.now(), rows(limit));
        let params: [&dyn Param; 5] = [&partition, &epoch, &after, &limit, &now];
        let looked = self.ask(query!("delivery/ignore_keys"), &params).await?;
        Ok(looked.first().and_then(|row| row.get(0)))
    }

    async fn settle(&self, settlement: Settlement) -> Result<Vec<String>, StoreError> {
        settle::settle(self, &settlement).await
    }

    async fn blocked_keys(&self, partition: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let params: [&dyn Param; 2] = [&partition, &rows(limit)];
        let keys = self.ask(query!("delivery/blocked_keys"), &params).await?;
        Ok(keys.iter().map(|row| row.get(0)).collect())
    }

    async fn blocked(&self, partition: &str, keys: &[String]) -> Result<Vec<String>, StoreError> {
        let params: [&dyn Param; 2] = [&partition, &keys];
        let blocked = self.ask(query!("delivery/blocked"), &params).await?;
        Ok(blocked.iter().map(|row| row.get(0)).collect())
    }

    async fn due(
        &self,
        destination: &str,
        except: &[i64],
        limit: usize,
        behind: usize,
    ) -> Result<Vec<Parked>, StoreError> {
        let (now, limit, bytes) = (self.now(), rows(limit), rows(READ_BYTES));
        let behind = rows(behind);
        let params: [&dyn Param; 6] = [&destination, &now, &except, &limit, &bytes, &behind];
        let due = self.ask(query!("delivery/due"), &params).await?;
        until_unreadable(due.iter().map(|row| parked(row, self.keyring())).collect())
    }

    async fn next_due(&self, destination: &str) -> Result<Option<Timestamp>, StoreError> {
        let next = self
            .ask(query!("delivery/next_due"), &[&destination])
            .await?;
        Ok(next.first().map(|row| row.get::<_, Moment>(0).0))
    }

    async fn backlog(&self, destination: &str) -> Result<Backlog, StoreError> {
        let backlogs = self.backlogs(&[destination.to_owned()]).await?;
        let backlog = backlogs.into_iter().next();
        Ok(backlog.map_or_else(Backlog::default, |(_, backlog)| backlog))
    }
}

impl Summaries for Postgres {
    async fn due_of(&self, partitions: &[String]) -> Result<Vec<String>, StoreError> {
        let now = self.now();
        let due = self
            .ask(query!("delivery/due_of"), &[&partitions, &now])
            .await?;
        Ok(due.iter().map(|row| row.get(0)).collect())
    }

    async fn backlogs(&self, partitions: &[String]) -> Result<Vec<(String, Backlog)>, StoreError> {
        backlog::read(self, partitions).await
    }
}

impl DeadLetters for Postgres {
    async fn attempts(&self, partition: &str, position: i64) -> Result<Vec<Attempt>, StoreError> {
        let tried = dead_letter::attempts(self, &[(position, partition)]).await?;
        Ok(tried.into_iter().map(|(_, attempt)| attempt).collect())
    }

    async fn dead_letters(
        &self,
        destination: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        dead_letter::list(self, destination, after, limit).await
    }

    async fn replay(&self, destination: &str, position: i64) -> Result<bool, StoreError> {
        dead_letter::replay(self, destination, position).await
    }

    async fn discard(
        &self,
        destination: &str,
        position: i64,
        reason: &str,
    ) -> Result<bool, StoreError> {
        dead_letter::discard(self, destination, position, reason).await
    }
}

/// Why a flight of deliveries did not land.
pub(crate) fn pipeline_failed(failed: PipelineError) -> StoreError {
    failed.cause.into()
}

fn parked(row: &Row, keyring: &Keyring) -> Result<Parked, StoreError> {
    let bad = |error: tokio_postgres::Error| corrupt(format!("parked delivery: {error}"));
    let state = match row.try_get("state").map_err(bad)? {
        "scheduled" => ParkedState::Scheduled,
        "retrying" => ParkedState::Retrying,
        "blocked" => ParkedState::Blocked,
        other => return Err(corrupt(format!("parked delivery in state {other:?}"))),
    };
    Ok(Parked {
        event: outbox::event(row, keyring)?,
        state,
        attempt: row
            .try_get::<_, i32>("attempt")
            .map_err(bad)?
            .unsigned_abs(),
        next_at: row.try_get::<_, Moment>("next_at").map_err(bad)?.0,
        order_key: row.try_get("order_key").map_err(bad)?,
        manual: row.try_get("manual").map_err(bad)?,
    })
}
