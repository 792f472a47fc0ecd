//! Where a destination starts: a position that is recorded once, before its first partition is
//! opened.
//!
//! Positions are in commit order, so everything that is committed later has a higher position than
//! the last one that the recording transaction sees.

use hapax::{Timestamp, delivery::Start};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::query;

/// How far ids and times may be out of step, in milliseconds.
const SKEW_MS: i64 = 5 * 60 * 1_000;

/// Whether the start of a destination can still be recorded.
pub(super) fn may_start(conn: &Connection, destination: &str) -> rusqlite::Result<bool> {
    let mut may_start = conn.prepare_cached(query!("delivery/may_start"))?;
    may_start.query_row([destination], |row| row.get(0))
}

/// Records where a destination starts, in the caller's transaction. Returns false if it is not new.
pub(crate) fn record(
    conn: &Connection,
    destination: &str,
    start: Start,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    if !may_start(conn, destination)? {
        return Ok(false);
    }
    let frontier = match start {
        Start::Beginning => 0,
        Start::Now => last(conn)?,
        Start::At(time) => before(conn, time)?,
    };
    let mut record = conn.prepare_cached(query!("delivery/record_start"))?;
    record.execute(params![destination, frontier, now.as_millis()])?;
    Ok(true)
}

/// The position after which a partition starts that was never opened.
pub(super) fn start_of(conn: &Connection, partition: &str) -> rusqlite::Result<i64> {
    let mut start_of = conn.prepare_cached(query!("delivery/start_of"))?;
    let start = start_of.query_row([partition], |row| row.get("frontier"));
    Ok(start.optional()?.unwrap_or_default())
}

/// The position, approximately, of the first event that was created at or after a time.
pub(crate) fn id_at(conn: &Connection, time: Timestamp) -> rusqlite::Result<i64> {
    let mut range = conn.prepare_cached(query!("admin/id_range"))?;
    let range = range.query_row([], |row| Ok((row.get("low")?, row.get("high")?)))?;
    let (Some(mut low), Some(last)): (Option<i64>, Option<i64>) = range else {
        return Ok(0);
    };
    let mut high = last.saturating_add(1);
    let mut id_at = conn.prepare_cached(query!("admin/id_at"))?;
    while low < high {
        let middle = low + (high - low) / 2;
        let next = id_at.query_row([middle], |row| Ok((row.get("id")?, row.get("created_at")?)));
        let next: Option<(i64, i64)> = next.optional()?;
        match next {
            Some((id, created_at)) if id < high && created_at < time.as_millis() => low = id + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The position before the first event that was created at or after a time; the last position if
/// there is no such event.
pub(crate) fn before(conn: &Connection, time: Timestamp) -> rusqlite::Result<i64> {
    let time = time.as_millis();
    let from = id_at(conn, Timestamp::from_millis(time.saturating_sub(SKEW_MS)))?;
    let mut first = conn.prepare_cached(query!("outbox/first_since"))?;
    let first = first.query_row([from, time], |row| row.get::<_, i64>(0));
    match first.optional()? {
        Some(first) => Ok(first - 1),
        None => last(conn),
    }
}

/// The last position that was committed.
pub(crate) fn last(conn: &Connection) -> rusqlite::Result<i64> {
    let mut last = conn.prepare_cached(query!("outbox/last"))?;
    last.query_row([], |row| row.get(0))
}
