//! Arrivals: first attempts that the receiver accepted, one row for many consecutive ones.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use hapax::{
    Timestamp,
    delivery::{Arrived, Attempt, AttemptOutcome, positions},
};
use rusqlite::{Connection, params};

use crate::query;

/// The most positions that one row spans.
const SPAN: i64 = 1 << 13;

/// Writes arrivals to the log of attempts.
pub(crate) fn note(
    conn: &Connection,
    partition: &str,
    arrived: &[Arrived],
) -> rusqlite::Result<()> {
    for batch in arrived {
        let mut run = BTreeSet::new();
        for position in &batch.positions {
            if run.first().is_some_and(|first| position - first >= SPAN) {
                write(conn, partition, batch, &run)?;
                run.clear();
            }
            run.insert(*position);
        }
        write(conn, partition, batch, &run)?;
    }
    Ok(())
}

fn write(
    conn: &Connection,
    partition: &str,
    batch: &Arrived,
    run: &BTreeSet<i64>,
) -> rusqlite::Result<()> {
    let Some((first, last)) = run.first().zip(run.last()) else {
        return Ok(());
    };
    conn.prepare_cached(query!("delivery/arrival"))?
        .execute(params![
            partition,
            positions::write(run),
            first,
            last,
            batch.started_at.as_millis(),
            i64::try_from(batch.duration.as_millis()).unwrap_or(i64::MAX),
            batch.status,
        ])?;
    Ok(())
}

/// Returns the first attempt at a delivery, if that attempt succeeded.
pub(crate) fn find(
    conn: &Connection,
    partition: &str,
    position: i64,
) -> rusqlite::Result<Option<Attempt>> {
    let mut arrivals = conn.prepare_cached(query!("delivery/arrivals"))?;
    let mut rows = arrivals.query(params![position, partition])?;
    while let Some(row) = rows.next()? {
        let held: String = row.get("positions")?;
        if positions::parse(&held).is_some_and(|held| held.contains(&position)) {
            return Ok(Some(Attempt {
                position,
                number: 1,
                started_at: Timestamp::from_millis(row.get("started_at")?),
                duration: Duration::from_millis(row.get::<_, i64>("duration_ms")?.unsigned_abs()),
                outcome: AttemptOutcome::Delivered,
                status: row.get("status")?,
                error: None,
                response_head: Bytes::new(),
            }));
        }
    }
    Ok(None)
}
