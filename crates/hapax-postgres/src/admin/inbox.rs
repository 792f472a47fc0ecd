//! Accepted messages: which consumer accepted which message, from which source, and when.
//!
//! Messages belong to no tenant, so an actor of a tenant sees none.

use async_trait::async_trait;
use hapax::{
    admin::{Actor, AdminError, Cursor, InboxAdmin, Message, MessageFilter, PAGE_MAX, Page},
    store::StoreError,
};
use tokio_postgres::Row;

use super::{filters::word, pagination};
use crate::{
    delivery::settle::text,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

#[async_trait]
impl InboxAdmin for Postgres {
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
        if let Some(id) = &filter.message_id {
            // One id has at most one row for each consumer and source: they are on one page.
            let (consumer, source) = (filter.consumer.as_ref(), filter.source.as_ref());
            let taken = taken(self, vec![text(id)], consumer, source, PAGE_MAX).await?;
            let items = taken.into_iter().filter(|it| filter.fits(it)).collect();
            return Ok(Page::last(items));
        }
        let limit = limit.clamp(1, PAGE_MAX);
        let from = Cursor::of(before, filter.until)?;
        let (consumer, source) = (word(filter.consumer.as_ref()), word(filter.source.as_ref()));
        let (since, count) = (filter.since.map(Moment), rows(limit));
        let is_any = consumer.is_none() && source.is_none() && since.is_none();
        let look = if is_any { count } else { LOOK };
        let params: [&dyn Param; 7] = [
            &consumer,
            &source,
            &since,
            &from.micros,
            &from.tie,
            &count,
            &look,
        ];
        let found = self.ask(query!("admin/inbox"), &params).await?;
        let matching = found
            .iter()
            .filter(|row| row.get::<_, Option<&str>>("consumer").is_some());
        let listed: Vec<&Row> = matching.collect();
        let last = listed.last().filter(|_| listed.len() == limit);
        let last = last.map(|row| pagination::cursor(row));
        Ok(Page {
            items: listed.iter().map(|row| message(row)).collect(),
            next: pagination::next(last, &found, look, filter.since),
        })
    }
}

/// Lists at most `limit` rows of each of these messages, by message, consumer and source.
pub(super) async fn taken(
    store: &Postgres,
    message_ids: Vec<String>,
    consumer: Option<&String>,
    source: Option<&String>,
    limit: usize,
) -> Result<Vec<Message>, StoreError> {
    let (consumer, source, limit) = (word(consumer), word(source), rows(limit));
    let params: [&dyn Param; 4] = [&message_ids, &consumer, &source, &limit];
    let found = store.ask(query!("admin/inbox_of"), &params).await?;
    Ok(found.iter().map(message).collect())
}

/// Messages that a page reads. This takes some tens of milliseconds.
const LOOK: i64 = 10_000;

fn message(row: &Row) -> Message {
    Message {
        consumer: row.get("consumer"),
        message_id: row.get("message_id"),
        source: row.get("source"),
        payload_hash: row.get("payload_hash"),
        received_at: row.get::<_, Moment>("received_at").0,
        processed_at: row.get::<_, Option<Moment>>("processed_at").map(|it| it.0),
        result: row.get("result"),
    }
}
