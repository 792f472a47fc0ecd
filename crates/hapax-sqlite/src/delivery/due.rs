//! Parked deliveries that are due, and those that are blocked by their order keys.

use std::collections::HashSet;

use hapax::{
    Timestamp,
    delivery::{Parked, ParkedState},
    keyring::Keyring,
    limits::READ_BYTES,
    store::{StoreError, until_unreadable},
};
use rusqlite::{Connection, Row, params};

use crate::{
    error::{corrupt, store_error},
    outbox, query,
    writer::WriterContext,
};

/// Makes blocked deliveries due without their order keys, if `epoch` owns the partition. Returns
/// the last position that it covered.
pub(super) fn ignore_keys(
    ctx: &WriterContext,
    partition: &str,
    epoch: i64,
    after: i64,
    limit: usize,
) -> rusqlite::Result<Option<i64>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut until = ctx.conn.prepare_cached(query!("delivery/parked_until"))?;
    let until: Option<i64> =
        until.query_row(params![partition, epoch, after, limit], |row| row.get(0))?;
    if let Some(until) = until {
        let now = ctx.now().as_millis();
        ctx.conn
            .prepare_cached(query!("delivery/ignore_keys"))?
            .execute(params![partition, after, until, now])?;
    }
    Ok(until)
}

/// The parked deliveries of one read, up to its bounds.
pub(super) struct DueDeliveries {
    except: HashSet<i64>,
    limit: usize,
    keyring: Keyring,
    bytes: usize,
    parked: Vec<Result<Parked, StoreError>>,
    /// Position and order key of the deliveries that block others.
    heads: Vec<(i64, String)>,
}

impl DueDeliveries {
    pub(super) fn new(except: HashSet<i64>, limit: usize, keyring: Keyring) -> Self {
        Self {
            except,
            limit,
            keyring,
            bytes: 0,
            parked: Vec::new(),
            heads: Vec::new(),
        }
    }

    /// Reads the due deliveries, and for each that blocks its order key up to `behind` blocked
    /// ones.
    pub(super) fn read(
        &mut self,
        conn: &Connection,
        destination: &str,
        now: Timestamp,
        behind: usize,
    ) -> Result<(), StoreError> {
        self.due(conn, destination, now).map_err(store_error)?;
        let behind = i64::try_from(behind).unwrap_or(i64::MAX);
        if behind > 0 {
            for (position, key) in std::mem::take(&mut self.heads) {
                let next = params![destination, key, position, behind];
                self.behind(conn, next).map_err(store_error)?;
            }
        }
        Ok(())
    }

    pub(super) fn end(self) -> Result<Vec<Parked>, StoreError> {
        until_unreadable(self.parked)
    }

    fn due(
        &mut self,
        conn: &Connection,
        destination: &str,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let mut statement = conn.prepare_cached(query!("delivery/due"))?;
        let mut rows = statement.query(params![destination, now.as_millis()])?;
        while self.has_room()
            && let Some(row) = rows.next()?
        {
            let parked = self.take(row)?;
            if let Some(Ok(Parked {
                event,
                state: ParkedState::Retrying,
                order_key: Some(key),
                ..
            })) = parked
            {
                let head = (event.position, key.clone());
                self.heads.push(head);
            }
        }
        Ok(())
    }

    fn behind(&mut self, conn: &Connection, next: &[&dyn rusqlite::ToSql]) -> rusqlite::Result<()> {
        let mut statement = conn.prepare_cached(query!("delivery/behind"))?;
        let mut rows = statement.query(next)?;
        while self.has_room()
            && let Some(row) = rows.next()?
            && row.get_ref("state")?.as_str()? == "blocked"
        {
            self.take(row)?;
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.parked.len() < self.limit && self.bytes <= READ_BYTES
    }

    fn take(&mut self, row: &Row<'_>) -> rusqlite::Result<Option<&Result<Parked, StoreError>>> {
        if self.except.contains(&row.get(0)?) {
            return Ok(None);
        }
        self.bytes += outbox::stored_bytes(row)?;
        self.parked.push(parked(row, &self.keyring));
        Ok(self.parked.last())
    }
}

fn parked(row: &Row<'_>, keyring: &Keyring) -> Result<Parked, StoreError> {
    let bad = |error: rusqlite::Error| corrupt(format!("parked delivery: {error}"));
    let state: String = row.get("state").map_err(bad)?;
    let state = match state.as_str() {
        "scheduled" => ParkedState::Scheduled,
        "retrying" => ParkedState::Retrying,
        "blocked" => ParkedState::Blocked,
        other => return Err(corrupt(format!("parked delivery in state {other:?}"))),
    };
    Ok(Parked {
        event: outbox::event(row, keyring)?,
        state,
        attempt: row.get("attempt").map_err(bad)?,
        next_at: Timestamp::from_millis(row.get("next_at").map_err(bad)?),
        order_key: row.get("order_key").map_err(bad)?,
        manual: row.get("manual").map_err(bad)?,
    })
}
