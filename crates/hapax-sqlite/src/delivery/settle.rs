//! Settlements: everything that one round of the relay writes, in one savepoint.
//!
//! The writer first reads the checkpoint's epoch. If another relay has taken the partition since,
//! the settlement is fenced and changes nothing. The checkpoint also has the number of the last
//! settlement, so that a repeated settlement is not written twice.

use hapax::{
    delivery::{Checkpoint, CheckpointId, Park, ParkedState, Settlement, positions},
    operational::Occurrence,
    store::StoreError,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{
    delivery::{arrival, log, word},
    error::store_error,
    operational::Emitter,
    query,
    writer::WriterContext,
};

/// Writes a settlement, if its epoch still owns the destination.
///
/// Returns the released order keys that have no unfinished deliveries.
pub(crate) fn settle(
    ctx: &mut WriterContext,
    settlement: &Settlement,
    emitter: &Emitter,
) -> Result<Vec<String>, StoreError> {
    let newest = newest(&ctx.conn, &settlement.destination).map_err(store_error)?;
    check_owner(newest, settlement)?;
    let last = newest.map(|newest| newest.settlement);
    let now = ctx.now().as_millis();
    if settlement.number > 0 && last >= Some(settlement.number) {
        let destination = &settlement.destination;
        let released = release_all(&ctx.conn, destination, &settlement.release, now);
        return released.map_err(store_error);
    }
    let free = write(&ctx.conn, settlement, now).map_err(store_error)?;
    emitter.emit(ctx, Occurrence::of_settlement(settlement))?;
    Ok(free)
}

/// Rejects a settlement if the relay no longer owns the destination, or if the store was set back
/// to an earlier state: another program can restore a backup into the file.
fn check_owner(newest: Option<CheckpointId>, settlement: &Settlement) -> Result<(), StoreError> {
    let Settlement { epoch, number, .. } = *settlement;
    let Some(follows) = settlement.follows else {
        let is_owner = newest.is_some_and(|newest| newest.epoch == epoch);
        return is_owner.then_some(()).ok_or(StoreError::Fenced);
    };
    match newest {
        Some(newest) if newest.epoch > epoch => Err(StoreError::Fenced),
        Some(newest) if newest.epoch == epoch && newest.settlement == number => Ok(()),
        Some(newest) if newest == follows => Ok(()),
        Some(newest) => Err(StoreError::SetBack {
            what: format!("its newest checkpoint is {newest}, and {follows} was written"),
        }),
        None => Err(StoreError::SetBack {
            what: format!("it holds no checkpoint, and {follows} was written"),
        }),
    }
}

/// Returns the id of a destination's checkpoint.
fn newest(conn: &Connection, destination: &str) -> rusqlite::Result<Option<CheckpointId>> {
    let mut statement = conn.prepare_cached(query!("delivery/epoch"))?;
    let newest = |row: &Row<'_>| {
        Ok(CheckpointId {
            epoch: row.get("epoch")?,
            settlement: row.get("settlement")?,
            high: row.get("frontier")?,
        })
    };
    statement.query_row([destination], newest).optional()
}

fn write(conn: &Connection, settlement: &Settlement, now: i64) -> rusqlite::Result<Vec<String>> {
    let destination = settlement.destination.as_str();
    if let Some(checkpoint) = &settlement.checkpoint {
        move_checkpoint(conn, settlement, checkpoint, now)?;
    }
    for (position, number) in &settlement.begin {
        conn.prepare_cached(query!("delivery/begin"))?
            .execute(params![destination, position, number, now])?;
    }
    park(conn, destination, &settlement.park, now)?;
    for position in &settlement.delivered {
        conn.prepare_cached(query!("delivery/deliver"))?
            .execute(params![destination, position, now])?;
    }
    let free = release_all(conn, destination, &settlement.release, now)?;
    log(conn, destination, &settlement.attempts)?;
    arrival::note(conn, destination, &settlement.arrived)?;
    if let Some(reason) = &settlement.disable {
        conn.prepare_cached(query!("delivery/disable"))?
            .execute(params![destination, now, reason])?;
    }
    Ok(free)
}

/// Releases order keys, and returns those that have no unfinished deliveries.
fn release_all(
    conn: &Connection,
    destination: &str,
    keys: &[String],
    now: i64,
) -> rusqlite::Result<Vec<String>> {
    let mut free = Vec::new();
    for key in keys {
        if release(conn, destination, key, now)? {
            free.push(key.clone());
        }
    }
    Ok(free)
}

/// Makes the first blocked delivery of an order key due. Returns true if the key has no unfinished
/// deliveries.
pub(crate) fn release(
    conn: &Connection,
    destination: &str,
    key: &str,
    now: i64,
) -> rusqlite::Result<bool> {
    let mut release = conn.prepare_cached(query!("delivery/release"))?;
    if release.execute(params![destination, key, now])? > 0 {
        return Ok(false);
    }
    let mut is_held = conn.prepare_cached(query!("delivery/is_held"))?;
    let held: bool = is_held.query_row([destination, key], |row| row.get(0))?;
    Ok(!held)
}

/// Parks deliveries. All rows are written before any is unblocked, because a delivery that blocks
/// another may come later in the list.
fn park(conn: &Connection, destination: &str, parks: &[Park], now: i64) -> rusqlite::Result<()> {
    for park in parks {
        write_park(conn, destination, park, now)?;
    }
    for park in parks
        .iter()
        .filter(|park| park.state == ParkedState::Blocked)
    {
        conn.prepare_cached(query!("delivery/unblock"))?
            .execute(params![destination, park.position, now])?;
    }
    Ok(())
}

fn move_checkpoint(
    conn: &Connection,
    settlement: &Settlement,
    checkpoint: &Checkpoint,
    now: i64,
) -> rusqlite::Result<()> {
    conn.prepare_cached(query!("delivery/checkpoint"))?
        .execute(params![
            settlement.destination,
            checkpoint.frontier.high,
            positions::write(&checkpoint.settled),
            positions::write(&checkpoint.offered),
            now,
            settlement.number,
        ])?;
    Ok(())
}

fn write_park(conn: &Connection, destination: &str, park: &Park, now: i64) -> rusqlite::Result<()> {
    conn.prepare_cached(query!("delivery/park"))?
        .execute(params![
            destination,
            park.position,
            word(park.state),
            park.attempt,
            park.next_at.as_millis(),
            park.order_key,
            park.last_error,
            now,
        ])?;
    Ok(())
}
