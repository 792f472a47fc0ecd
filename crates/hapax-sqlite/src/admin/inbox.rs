//! Accepted messages: which consumer accepted which message, from which source, and when.
//!
//! Messages belong to no tenant, so an actor of a tenant sees none. Messages of one millisecond are
//! ordered by a hash of their key, so that a page can begin after any of them.

use std::ops::ControlFlow;

use async_trait::async_trait;
use hapax::{
    admin::{Actor, AdminError, Cursor, InboxAdmin, Message, MessageFilter, PAGE_MAX, Page},
    key::FingerprintBuilder,
};
use rusqlite::{Row, params};

use super::{
    declared::{moment, optional_moment},
    handle::SqliteAdmin,
    view::View,
};
use crate::{query, value::rows};

/// Messages that a page reads. This takes some tens of milliseconds.
const LOOK: usize = 5_000;

#[async_trait]
impl InboxAdmin for SqliteAdmin {
    async fn messages(
        &self,
        actor: &Actor,
        filter: &MessageFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<Message>, AdminError> {
        if actor.tenant.is_some() {
            return Ok(Page::last(Vec::new()));
        }
        let filter = filter.clone();
        if let Some(id) = filter.message_id.clone() {
            // One id has at most one row for each consumer and source: they are on one page.
            let taken = move |view: &View<'_>| -> Result<Page<Message>, AdminError> {
                let mut taken = taken(view, &id, &filter, PAGE_MAX)?;
                taken.retain(|message| filter.fits(message));
                Ok(Page::last(taken))
            };
            return self.read(taken).await;
        }
        let limit = limit.clamp(1, PAGE_MAX);
        let from = Cursor::of(before, filter.until)?;
        self.read(move |view| page(view, &filter, from, limit))
            .await
    }
}

/// Lists the rows of a message, by consumer and source.
pub(super) fn taken(
    view: &View<'_>,
    message_id: &str,
    filter: &MessageFilter,
    limit: usize,
) -> Result<Vec<Message>, AdminError> {
    let params = params![message_id, filter.consumer, filter.source, rows(limit)];
    view.list(query!("admin/inbox_of"), params, message)
}

fn page(
    view: &View<'_>,
    filter: &MessageFilter,
    from: Cursor,
    limit: usize,
) -> Result<Page<Message>, AdminError> {
    let is_any = filter.consumer.is_none() && filter.source.is_none() && filter.since.is_none();
    let look = if is_any { limit } else { LOOK };
    let mut visited: Vec<(Cursor, Message)> = Vec::new();
    let since = from.micros.div_euclid(1_000);
    view.visit(query!("admin/inbox"), [since], |row| {
        let message = message(row)?;
        let at = Cursor::at(message.received_at, tie(&message));
        // Messages of the same millisecond are visited together, because their order is that of
        // their hashes.
        let is_later = |(last, _): &(Cursor, Message)| last.micros != at.micros;
        if visited.len() >= look && visited.last().is_some_and(is_later) {
            return Ok(ControlFlow::Break(()));
        }
        if at < from {
            visited.push((at, message));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    visited.sort_by(|(one, _), (other, _)| other.cmp(one));
    let ended = visited.last().filter(|_| visited.len() >= look);
    let ended = ended.map(|(end, _)| *end);
    let fits = visited
        .into_iter()
        .filter(|(_, message)| filter.fits(message));
    let listed: Vec<(Cursor, Message)> = fits.take(limit).collect();
    let last = listed.last().filter(|_| listed.len() == limit);
    let next = Cursor::next(last.map(|(last, _)| *last), ended, filter.since);
    let items = listed.into_iter().map(|(_, message)| message).collect();
    Ok(Page { items, next })
}

/// The hash of a message's key.
fn tie(message: &Message) -> i64 {
    let hash = FingerprintBuilder::new(1)
        .part(message.message_id.as_bytes())
        .part(message.consumer.as_bytes())
        .part(message.source.as_bytes())
        .finish();
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    i64::from_be_bytes(first)
}

fn message(row: &Row<'_>) -> rusqlite::Result<Message> {
    Ok(Message {
        consumer: row.get("consumer")?,
        message_id: row.get("message_id")?,
        source: row.get("source")?,
        payload_hash: row.get("payload_hash")?,
        received_at: moment(row, "received_at")?,
        processed_at: optional_moment(row, "processed_at")?,
        result: row.get("result")?,
    })
}
