//! The current status of every partition: its declaration, its owner and its backlog.
//!
//! Counts are bounded, so that the cost does not grow with the backlog. A relay without a node name
//! sends no heartbeats: it is alive as long as its process has the store open.

use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
};

use hapax::{
    Timestamp,
    admin::{Actor, AdminError, NextRetry, PartitionStatus, destination_of},
    delivery::positions,
    limits::NODE_LEASE,
};
use rusqlite::{Row, params};
use serde_json::Value;

use super::{
    declared::{moment, optional_moment},
    events::before,
    view::View,
};
use crate::{delivery::sample::DueSample, error::corrupt, lock::has_relay, outbox, query};

/// The number of partitions that each destination has.
#[derive(Debug, Default)]
pub(super) struct Shares(HashMap<String, i64>);

impl Shares {
    /// Counts the partitions of each destination.
    pub(super) fn of<'a>(partitions: impl Iterator<Item = &'a str>) -> Self {
        let mut shares = HashMap::new();
        for partition in partitions {
            let destination = destination_of(partition).to_owned();
            *shares.entry(destination).or_insert(0) += 1;
        }
        Self(shares)
    }

    /// Whether a partition delivers a shard.
    pub(super) fn has(&self, partition: &str, shard: u8) -> bool {
        let number: Option<i64> = partition
            .split_once('/')
            .and_then(|(_, number)| number.parse().ok());
        number.is_none_or(|number| i64::from(shard) % self.count(partition) == number)
    }

    fn count(&self, partition: &str) -> i64 {
        let count = self.0.get(destination_of(partition));
        count.copied().unwrap_or(1).max(1)
    }
}

/// All partitions that an actor may see, by name.
pub(super) fn partitions(
    view: &View<'_>,
    actor: &Actor,
) -> Result<Vec<PartitionStatus>, AdminError> {
    let tenant = actor.tenant();
    let lease = NODE_LEASE;
    let (since, until) = (before(view.now, lease), view.now.after(lease));
    let times = [since.as_millis(), until.as_millis()];
    let living: Vec<String> = view.list(query!("admin/living"), times, |row| row.get(0))?;
    let living: BTreeSet<String> = living.into_iter().collect();
    let last = view.first(query!("outbox/last"), (), |row| row.get(0))?;
    let mut opened = view.list(query!("admin/partitions_now"), (), opened)?;
    let is_own = |it: &Opened| tenant.is_none_or(|own| it.spec["tenant"] == own);
    opened.retain(is_own);
    let shares = Shares::of(opened.iter().map(|it| it.name.as_str()));
    let is_served = view
        .conn
        .path()
        .is_some_and(|path| has_relay(path.as_ref()));
    let known = ProcessFacts {
        living,
        is_served,
        shares,
        last: last.unwrap_or(0),
    };
    let status = |opened| status(view, opened, &known);
    opened.into_iter().map(status).collect()
}

/// What is known of all partitions.
struct ProcessFacts {
    /// The live nodes.
    living: BTreeSet<String>,
    /// Whether a relay without a node name is running.
    is_served: bool,
    shares: Shares,
    /// The highest position.
    last: i64,
}

/// The row of a partition.
struct Opened {
    name: String,
    disabled_at: Option<Timestamp>,
    disabled_reason: Option<String>,
    paused_at: Option<Timestamp>,
    paused_by: Option<String>,
    spec: Value,
    node: Option<String>,
    seen_at: Option<Timestamp>,
    frontier: i64,
    settled: String,
    written_at: Timestamp,
}

fn opened(row: &Row<'_>) -> rusqlite::Result<Opened> {
    let spec: Option<String> = row.get("spec")?;
    let spec = spec.and_then(|text| serde_json::from_str(&text).ok());
    Ok(Opened {
        name: row.get("name")?,
        disabled_at: optional_moment(row, "disabled_at")?,
        disabled_reason: row.get("disabled_reason")?,
        paused_at: optional_moment(row, "paused_at")?,
        paused_by: row.get("paused_by")?,
        spec: spec.unwrap_or_default(),
        node: row.get("node")?,
        seen_at: optional_moment(row, "seen_at")?,
        frontier: row.get("frontier")?,
        settled: row.get("settled")?,
        written_at: moment(row, "written_at")?,
    })
}

fn status(
    view: &View<'_>,
    opened: Opened,
    known: &ProcessFacts,
) -> Result<PartitionStatus, AdminError> {
    let unread = unread(view, &opened, &known.shares)?;
    let bound = PartitionStatus::DELIVERIES;
    let count = |sql: &str| -> Result<u64, AdminError> {
        let counted = view.first(sql, params![opened.name, bound], |row| row.get::<_, i64>(0))?;
        Ok(counted.unwrap_or(0).unsigned_abs())
    };
    let (parked, dead) = (count(query!("admin/parked"))?, count(query!("admin/dead"))?);
    let (sql, now) = (query!("delivery/oldest_parked"), view.now.as_millis());
    let oldest_parked: Option<Option<i64>> =
        view.first(sql, params![opened.name, now], |row| row.get(0))?;
    let about = known.last.saturating_sub(opened.frontier).max(0);
    let about = about / known.shares.count(&opened.name);
    let lives = match &opened.node {
        Some(node) => known.living.contains(node),
        None => known.is_served,
    };
    Ok(PartitionStatus {
        next: next_retry(view, &opened.name)?,
        oldest_unread: unread.sample.oldest(PartitionStatus::EVENTS, view.now),
        oldest_parked: oldest_parked.flatten().map(Timestamp::from_millis),
        disabled: opened
            .disabled_at
            .map(|at| (at, opened.disabled_reason.unwrap_or_default())),
        paused_at: opened.paused_at,
        paused_by: opened.paused_by,
        is_set_paused: opened.spec["paused"] == true,
        lives,
        any_lives: lives || !known.living.is_empty(),
        node: opened.node,
        seen_at: opened.seen_at,
        written_at: opened.written_at,
        unread: unread.number,
        looked: unread.looked,
        about: about.unsigned_abs(),
        parked,
        dead,
        at: view.now,
        name: opened.name,
    })
}

/// The unsettled events beyond a frontier.
#[derive(Default)]
struct Unread {
    looked: i64,
    number: u64,
    sample: DueSample,
}

fn unread(view: &View<'_>, opened: &Opened, shares: &Shares) -> Result<Unread, AdminError> {
    let settled = positions::parse(&opened.settled)
        .ok_or_else(|| corrupt(format!("checkpoint of {}", opened.name)))?;
    let mut unread = Unread::default();
    let params = [opened.frontier, PartitionStatus::EVENTS];
    view.visit(query!("admin/unread"), params, |row| {
        unread.looked += 1;
        let position = row.get("id")?;
        let waits = shares.has(&opened.name, outbox::shard(row)?) && !settled.contains(&position);
        unread.number += u64::from(waits);
        let sample = &mut unread.sample;
        sample.add(!waits, row.get("created_at")?, row.get("due_at")?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(unread)
}

/// The first retry among the deliveries that are due next.
fn next_retry(view: &View<'_>, partition: &str) -> Result<Option<NextRetry>, AdminError> {
    let mut next = None;
    let params = params![partition, PartitionStatus::DUE];
    view.visit(query!("admin/retrying"), params, |row| {
        if row.get_ref("state")?.as_str()? != "retrying" {
            return Ok(ControlFlow::Continue(()));
        }
        next = Some(NextRetry {
            position: row.get("position")?,
            attempts: row.get("attempt")?,
            due_at: moment(row, "next_at")?,
            error: row.get("last_error")?,
            changed_at: moment(row, "changed_at")?,
        });
        Ok(ControlFlow::Break(()))
    })?;
    Ok(next)
}
