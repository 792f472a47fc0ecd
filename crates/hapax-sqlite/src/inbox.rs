//! The inbox: a message is accepted once, in the transaction of its effect.
//!
//! The insert itself decides whether the message is new, so no other request can come in between.

use hapax::{
    inbox::{Acceptance, Message, Processed},
    limits::PURGE_ROWS,
    store::StoreError,
};
use rusqlite::{Connection, params};

use crate::{error::own_error, query, value::rows, writer::WriterContext};

/// Accepts a message for its consumer, unless the consumer has already accepted it.
pub(crate) fn accept(ctx: &WriterContext, message: &Message) -> Result<Acceptance, StoreError> {
    let accept = || {
        let taken = ctx
            .conn
            .prepare_cached(query!("inbox/accept"))?
            .execute(params![
                message.consumer,
                message.message_id,
                message.source,
                message.payload_hash,
                ctx.now().as_millis(),
            ])?;
        if taken == 1 {
            return Ok(Acceptance::First);
        }
        let mut find = ctx.conn.prepare_cached(query!("inbox/find"))?;
        let known = [&message.consumer, &message.message_id, &message.source];
        let hash: Vec<u8> = find.query_row(known, |row| row.get(0))?;
        Ok(if hash == message.payload_hash {
            Acceptance::Duplicate
        } else {
            Acceptance::Mismatch
        })
    };
    accept().map_err(own_error)
}

/// Completes the rows of new messages, at the end of their transaction.
pub(crate) fn processed(ctx: &WriterContext, messages: &[Processed]) -> Result<(), StoreError> {
    let write = || -> rusqlite::Result<()> {
        for it in messages {
            let mut processed = ctx.conn.prepare_cached(query!("inbox/processed"))?;
            processed.execute(params![
                it.consumer,
                it.message_id,
                it.source,
                ctx.now().as_millis(),
                it.result,
            ])?;
        }
        Ok(())
    };
    write().map_err(store_error)
}

/// Deletes a batch of messages received before `before`.
pub(crate) fn purge(conn: &Connection, before: i64) -> rusqlite::Result<u64> {
    let mut purge = conn.prepare_cached(query!("inbox/purge"))?;
    Ok(purge.execute(params![before, rows(PURGE_ROWS)])? as u64)
}
