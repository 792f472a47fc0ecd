//! Ownership of partitions, and membership of nodes.
//!
//! Only one process has the file open, but several nodes may run in it, one after another or at the
//! same time. The rules are those of the PostgreSQL store. All times are compared with the store's
//! clock.

use std::time::Duration;

use hapax::{
    delivery::{Membership, Opened, OwnedPartition},
    store::StoreError,
};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::{error::store_error, query, writer::WriterContext};

/// After a day without a heartbeat, a node is deleted.
const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// Opens a partition for a node, unless another live node owns it.
pub(super) fn take(
    ctx: &WriterContext,
    partition: &str,
    node: &str,
    lease: Duration,
) -> Result<Option<Opened>, StoreError> {
    let (since, until) = window(ctx, lease);
    let conn = &ctx.conn;
    let is_free = || {
        let mut is_free = conn.prepare_cached(query!("delivery/is_free"))?;
        is_free.query_row(params![partition, node, since, until], |row| row.get(0))
    };
    let is_free: bool = is_free().map_err(store_error)?;
    if !is_free {
        return Ok(None);
    }
    let owner = owner(conn, partition).map_err(store_error)?;
    // A node that takes its own partition again may have panicked during an attempt.
    let other = owner.as_deref().filter(|owner| *owner != node);
    let opened = super::open_after(ctx, partition, other)?;
    let take = || {
        let mut take = conn.prepare_cached(query!("delivery/take"))?;
        take.execute(params![partition, node, ctx.now().as_millis()])
    };
    take().map_err(store_error)?;
    Ok(Some(opened))
}

/// Returns the node that owns a partition.
fn owner(conn: &Connection, partition: &str) -> rusqlite::Result<Option<String>> {
    let mut owner = conn.prepare_cached(query!("delivery/owner"))?;
    let held = owner.query_row([partition], |row| row.get(0)).optional()?;
    Ok(held.flatten())
}

/// Records which node's attempts were interrupted.
pub(super) fn interrupt_owner(
    conn: &Connection,
    partition: &str,
    attempts: &[(i64, u32)],
    owner: &str,
) -> rusqlite::Result<()> {
    let mut interrupt = conn.prepare_cached(query!("delivery/interrupt_owner"))?;
    for (position, number) in attempts {
        interrupt.execute(params![position, partition, number, owner])?;
    }
    Ok(())
}

/// Counts the interrupted attempts at these deliveries whose owner has sent a heartbeat since.
pub(super) fn outlived(
    conn: &Connection,
    partition: &str,
    positions: &[i64],
) -> rusqlite::Result<Vec<(i64, u32)>> {
    let mut outlived = conn.prepare_cached(query!("delivery/outlived"))?;
    let mut all = Vec::new();
    for position in positions {
        let count: u32 = outlived.query_row(params![position, partition], |row| row.get(0))?;
        if count > 0 {
            all.push((*position, count));
        }
    }
    Ok(all)
}

/// Stores a node's heartbeat with its known destinations, one per line. Returns the live nodes and
/// the partitions that they own.
pub(super) fn heartbeat(
    ctx: &WriterContext,
    node: &str,
    knows: &str,
    lease: Duration,
) -> Result<Membership, StoreError> {
    let (since, until) = window(ctx, lease);
    let sign = || {
        let mut sign = ctx.conn.prepare_cached(query!("delivery/sign"))?;
        sign.execute(params![node, ctx.now().as_millis(), knows])?;
        membership(&ctx.conn, node, since, until)
    };
    sign().map_err(store_error)
}

/// Gives up a partition, if `epoch` still owns it.
pub(super) fn give_up(ctx: &WriterContext, partition: &str, epoch: i64) -> Result<(), StoreError> {
    let give_up = || {
        let mut give_up = ctx.conn.prepare_cached(query!("delivery/give_up"))?;
        give_up.execute(params![partition, epoch])
    };
    match give_up().map_err(store_error)? {
        0 => Err(StoreError::Fenced),
        _ => Ok(()),
    }
}

/// Gives up all partitions of a node, and deletes the node.
pub(super) fn leave(ctx: &WriterContext, node: &str) -> rusqlite::Result<()> {
    let long_ago = ctx.now().as_millis().saturating_sub(DAY_MS);
    let conn = &ctx.conn;
    conn.prepare_cached(query!("delivery/leave"))?
        .execute([node])?;
    conn.prepare_cached(query!("delivery/forget_node"))?
        .execute(params![node, long_ago])?;
    Ok(())
}

fn membership(
    conn: &Connection,
    node: &str,
    since: i64,
    until: i64,
) -> rusqlite::Result<Membership> {
    let mut membership = Membership::default();
    let mut heartbeat = conn.prepare_cached(query!("delivery/heartbeat"))?;
    let mut rows = heartbeat.query([since, until])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        if let Some(partition) = row.get(1)? {
            membership.held.push(OwnedPartition {
                partition,
                node: name.clone(),
                epoch: row.get("epoch")?,
            });
        }
        if membership.nodes.last() != Some(&name) {
            if let Some(knows) = row.get::<_, Option<String>>("destinations")? {
                let knows = knows.lines().map(str::to_owned).collect();
                membership.knows.insert(name.clone(), knows);
            }
            membership.nodes.push(name);
        }
    }
    // If the lease is zero, even the heartbeat that was just written is too old.
    if let Err(place) = membership
        .nodes
        .binary_search_by(|it| it.as_str().cmp(node))
    {
        membership.nodes.insert(place, node.to_owned());
    }
    Ok(membership)
}

/// The times between which a heartbeat shows that a node is alive now.
fn window(ctx: &WriterContext, lease: Duration) -> (i64, i64) {
    let now = ctx.now().as_millis();
    let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    (now.saturating_sub(lease), now.saturating_add(lease))
}
