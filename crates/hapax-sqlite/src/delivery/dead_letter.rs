//! Dead letters: list them with their attempts, replay them, or discard them.
//!
//! An operator does this, not the owner of the destination: these writes have no epoch, and they
//! wake the relay.

use std::time::Duration;

use bytes::Bytes;
use hapax::{
    Timestamp,
    dead_letter::DeadLetter,
    delivery::{Attempt, AttemptOutcome},
    keyring::Keyring,
    store::StoreError,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{
    delivery::arrival,
    delivery::settle::release,
    error::{corrupt, store_error},
    outbox, query,
    value::rows,
    writer::WriterContext,
};

/// Lists dead letters after a position, each with its attempts.
pub(crate) fn list(
    conn: &Connection,
    destination: &str,
    after: i64,
    limit: usize,
    keyring: &Keyring,
) -> Result<Vec<DeadLetter>, StoreError> {
    let mut letters = Vec::new();
    let mut read = || {
        let mut statement = conn.prepare_cached(query!("delivery/dead_letters"))?;
        let mut found = statement.query(params![destination, after, rows(limit)])?;
        while let Some(row) = found.next()? {
            letters.push(letter(row, keyring));
        }
        Ok(())
    };
    read().map_err(store_error)?;
    let mut letters: Vec<DeadLetter> = letters.into_iter().collect::<Result<_, _>>()?;
    for letter in &mut letters {
        letter.log = attempts(conn, destination, letter.event.position)?;
    }
    Ok(letters)
}

/// Makes a dead letter due again.
pub(crate) fn replay(
    ctx: &mut WriterContext,
    destination: &str,
    position: i64,
) -> rusqlite::Result<bool> {
    let now = ctx.now().as_millis();
    let replayed = ctx
        .conn
        .prepare_cached(query!("delivery/replay"))?
        .execute(params![destination, position, now])?;
    if replayed == 1 {
        ctx.notify_after_commit();
    }
    Ok(replayed == 1)
}

/// Discards a dead letter, and releases the deliveries that it blocked.
pub(crate) fn discard(
    ctx: &mut WriterContext,
    destination: &str,
    position: i64,
    reason: &str,
) -> rusqlite::Result<bool> {
    let now = ctx.now().as_millis();
    let discarded: Option<Option<String>> = ctx
        .conn
        .prepare_cached(query!("delivery/discard"))?
        .query_row(params![destination, position, now, reason], |row| {
            row.get(0)
        })
        .optional()?;
    let Some(order_key) = discarded else {
        return Ok(false);
    };
    if let Some(key) = order_key {
        release(&ctx.conn, destination, &key, now)?;
        ctx.notify_after_commit();
    }
    Ok(true)
}

/// Reads the attempts at a delivery in order, including a first attempt that succeeded.
pub(crate) fn attempts(
    conn: &Connection,
    destination: &str,
    position: i64,
) -> Result<Vec<Attempt>, StoreError> {
    let first = arrival::find(conn, destination, position).map_err(store_error)?;
    let mut log: Vec<_> = first.into_iter().map(Ok).collect();
    let mut read = || {
        let mut statement = conn.prepare_cached(query!("delivery/attempts"))?;
        let mut found = statement.query(params![position, destination])?;
        while let Some(row) = found.next()? {
            log.push(attempt(row));
        }
        Ok(())
    };
    read().map_err(store_error)?;
    log.into_iter().collect()
}

fn letter(row: &Row<'_>, keyring: &Keyring) -> Result<DeadLetter, StoreError> {
    let bad = |error: rusqlite::Error| corrupt(format!("dead letter: {error}"));
    Ok(DeadLetter {
        event: outbox::event(row, keyring)?,
        attempts: row.get("attempt").map_err(bad)?,
        last_error: row
            .get::<_, Option<String>>("last_error")
            .map_err(bad)?
            .unwrap_or_default(),
        died_at: Timestamp::from_millis(row.get("changed_at").map_err(bad)?),
        log: Vec::new(),
    })
}

fn attempt(row: &Row<'_>) -> Result<Attempt, StoreError> {
    let bad = |error: rusqlite::Error| corrupt(format!("attempt: {error}"));
    let outcome: String = row.get("outcome").map_err(bad)?;
    Ok(Attempt {
        position: row.get("position").map_err(bad)?,
        number: row.get("number").map_err(bad)?,
        started_at: Timestamp::from_millis(row.get("started_at").map_err(bad)?),
        duration: Duration::from_millis(
            row.get::<_, i64>("duration_ms")
                .map_err(bad)?
                .unsigned_abs(),
        ),
        outcome: AttemptOutcome::parse(&outcome)
            .ok_or_else(|| corrupt(format!("attempt with outcome {outcome:?}")))?,
        status: row.get("status").map_err(bad)?,
        error: row.get("error").map_err(bad)?,
        response_head: Bytes::from(row.get::<_, Vec<u8>>("response_head").map_err(bad)?),
    })
}
