//! Settling: all that one turn of the relay has to write, in one savepoint.
//!
//! The epoch is read first, on the connection that writes: an owner that was replaced changes
//! nothing, and is told so. Beside it stands which settlement was the last: one that comes again is
//! not written again.

use hapax::{
    delivery::{Checkpoint, Park, ParkedState, Settlement, positions},
    seeded::{self, Bug},
    store::StoreError,
};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    delivery::{arrival, log, word},
    error::store_error,
    query,
    writer::Desk,
};

/// Writes a settlement down, if its epoch still owns the destination.
///
/// Returns the released keys that nothing unfinished stands in the way of.
pub(crate) fn settle(desk: &Desk, settlement: &Settlement) -> Result<Vec<String>, StoreError> {
    let last = last(&desk.conn, &settlement.destination).map_err(store_error)?;
    let (epoch, last) = last.unzip();
    if epoch != Some(settlement.epoch) && !seeded::has(Bug::NoFence) {
        return Err(StoreError::Fenced);
    }
    let now = desk.now().as_millis();
    let written = if settlement.number > 0 && last >= Some(settlement.number) {
        let destination = &settlement.destination;
        release_all(&desk.conn, destination, &settlement.release, now)
    } else {
        write(&desk.conn, settlement, now)
    };
    written.map_err(store_error)
}

/// The epoch of a destination, and the number of its last settlement that had one.
fn last(conn: &Connection, destination: &str) -> rusqlite::Result<Option<(i64, i64)>> {
    let mut statement = conn.prepare_cached(query!("delivery/epoch"))?;
    statement
        .query_row([destination], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
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

/// Lets go of order keys, and returns those of which nothing is left.
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

/// Lets the first delivery behind an order key fall due; true when nothing is left of the key.
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

/// Parks all of them first: what stands before a blocked one may come later in the list.
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
