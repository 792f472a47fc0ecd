//! Who holds which destination, and who lives.
//!
//! One process has the file, but more than one node may be in it, one after the other or side by
//! side; the same rules hold as on a server. The store's clock judges.

use std::time::Duration;

use hapax::{
    delivery::{Attendance, Held, Opened},
    store::StoreError,
};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::{error::store_error, query, writer::Desk};

/// A silent node is forgotten after a day.
const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// Opens a part for a node, unless another one that lives holds it.
pub(super) fn take(
    desk: &Desk,
    part: &str,
    node: &str,
    lease: Duration,
) -> Result<Option<Opened>, StoreError> {
    let (since, until) = window(desk, lease);
    let conn = &desk.conn;
    let is_free = || {
        let mut is_free = conn.prepare_cached(query!("delivery/is_free"))?;
        is_free.query_row(params![part, node, since, until], |row| row.get(0))
    };
    let is_free: bool = is_free().map_err(store_error)?;
    if !is_free {
        return Ok(None);
    }
    let owner = owner(conn, part).map_err(store_error)?;
    // One that takes its own part anew may have panicked over what it had on the wire.
    let other = owner.as_deref().filter(|owner| *owner != node);
    let opened = super::open_after(desk, part, other)?;
    let take = || {
        let mut take = conn.prepare_cached(query!("delivery/take"))?;
        take.execute(params![part, node, desk.now().as_millis()])
    };
    take().map_err(store_error)?;
    Ok(Some(opened))
}

/// Which node holds a part.
fn owner(conn: &Connection, part: &str) -> rusqlite::Result<Option<String>> {
    let mut owner = conn.prepare_cached(query!("delivery/owner"))?;
    let held = owner.query_row([part], |row| row.get(0)).optional()?;
    Ok(held.flatten())
}

/// Writes down whose attempts were cut off.
pub(super) fn interrupt_owner(
    conn: &Connection,
    part: &str,
    attempts: &[(i64, u32)],
    owner: &str,
) -> rusqlite::Result<()> {
    let mut interrupt = conn.prepare_cached(query!("delivery/interrupt_owner"))?;
    for (position, number) in attempts {
        interrupt.execute(params![position, part, number, owner])?;
    }
    Ok(())
}

/// Counts the attempts at these deliveries that were cut off while their owner lived on.
pub(super) fn outlived(
    conn: &Connection,
    part: &str,
    positions: &[i64],
) -> rusqlite::Result<Vec<(i64, u32)>> {
    let mut outlived = conn.prepare_cached(query!("delivery/outlived"))?;
    let mut all = Vec::new();
    for position in positions {
        let count: u32 = outlived.query_row(params![position, part], |row| row.get(0))?;
        if count > 0 {
            all.push((*position, count));
        }
    }
    Ok(all)
}

/// Writes a sign of life down, with a line for each destination that is known, and says who else
/// lives and holds what.
pub(super) fn attend(
    desk: &Desk,
    node: &str,
    knows: &str,
    lease: Duration,
) -> Result<Attendance, StoreError> {
    let (since, until) = window(desk, lease);
    let sign = || {
        let mut sign = desk.conn.prepare_cached(query!("delivery/sign"))?;
        sign.execute(params![node, desk.now().as_millis(), knows])?;
        attendance(&desk.conn, node, since, until)
    };
    sign().map_err(store_error)
}

/// Lets a part go, if `epoch` is its own still.
pub(super) fn give_up(desk: &Desk, part: &str, epoch: i64) -> Result<(), StoreError> {
    let give_up = || {
        let mut give_up = desk.conn.prepare_cached(query!("delivery/give_up"))?;
        give_up.execute(params![part, epoch])
    };
    match give_up().map_err(store_error)? {
        0 => Err(StoreError::Fenced),
        _ => Ok(()),
    }
}

/// Lets everything go that a node holds, and forgets the node.
pub(super) fn leave(desk: &Desk, node: &str) -> rusqlite::Result<()> {
    let long_ago = desk.now().as_millis().saturating_sub(DAY_MS);
    let conn = &desk.conn;
    conn.prepare_cached(query!("delivery/leave"))?
        .execute([node])?;
    conn.prepare_cached(query!("delivery/forget_node"))?
        .execute(params![node, long_ago])?;
    Ok(())
}

fn attendance(
    conn: &Connection,
    node: &str,
    since: i64,
    until: i64,
) -> rusqlite::Result<Attendance> {
    let mut attendance = Attendance::default();
    let mut attend = conn.prepare_cached(query!("delivery/attend"))?;
    let mut rows = attend.query([since, until])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        if let Some(part) = row.get(1)? {
            attendance.held.push(Held {
                part,
                node: name.clone(),
                epoch: row.get(2)?,
            });
        }
        if attendance.nodes.last() != Some(&name) {
            if let Some(knows) = row.get::<_, Option<String>>(3)? {
                let knows = knows.lines().map(str::to_owned).collect();
                attendance.knows.insert(name.clone(), knows);
            }
            attendance.nodes.push(name);
        }
    }
    // With a lease of nothing not even the sign that was just written is young enough.
    if let Err(place) = attendance
        .nodes
        .binary_search_by(|it| it.as_str().cmp(node))
    {
        attendance.nodes.insert(place, node.to_owned());
    }
    Ok(attendance)
}

/// The moments between which a sign of life says that a node lives now.
fn window(desk: &Desk, lease: Duration) -> (i64, i64) {
    let now = desk.now().as_millis();
    let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    (now.saturating_sub(lease), now.saturating_add(lease))
}
