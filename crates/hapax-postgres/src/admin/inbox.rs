//! Accepted messages: which consumer accepted which message, from which source, and when.
//!
//! Messages belong to no tenant, so an actor of a tenant sees none.

use hapax::{Timestamp, store::StoreError};
use tokio_postgres::Row;

use super::{Actor, AdminError, PAGE_MAX, Page, filters::word};
use crate::{
    delivery::settle::text,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

pub use super::pagination::{Cursor, NoCursor};

/// A filter for messages. A field that is absent matches every message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// The consumer.
    pub consumer: Option<String>,
    /// The source.
    pub source: Option<String>,
    /// The id of the message; for an event, the event's id.
    pub message_id: Option<String>,
    /// Accepted at or after this time.
    pub since: Option<Timestamp>,
    /// Accepted before this time.
    pub until: Option<Timestamp>,
}

/// An accepted message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The consumer that accepted it.
    pub consumer: String,
    /// The id of the message.
    pub message_id: String,
    /// The source.
    pub source: String,
    /// The hash of the payload, in hex.
    pub payload_hash: String,
    /// When it was accepted.
    pub received_at: Timestamp,
    /// When its effect was complete.
    pub processed_at: Option<Timestamp>,
    /// The result, if the consumer stored one.
    pub result: Option<String>,
}

/// Lists messages that match a filter, the newest first.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn list(
    store: &Postgres,
    actor: &Actor,
    messages: &Messages,
    before: Option<&Cursor>,
    limit: usize,
) -> Result<Page<Message, Cursor>, AdminError> {
    if actor.tenant.is_some() {
        return Ok(Page {
            items: Vec::new(),
            next: None,
        });
    }
    if let Some(id) = &messages.message_id {
        // One id has at most one row for each consumer and source: they fit on one page.
        let (consumer, source) = (messages.consumer.as_ref(), messages.source.as_ref());
        let taken = taken(store, vec![text(id)], consumer, source).await?;
        let items = taken.into_iter().filter(|it| messages.fits(it)).collect();
        return Ok(Page { items, next: None });
    }
    let limit = limit.clamp(1, PAGE_MAX);
    let from = Cursor::of(before, messages.until);
    let (consumer, source) = (
        word(messages.consumer.as_ref()),
        word(messages.source.as_ref()),
    );
    let (since, count) = (messages.since.map(Moment), rows(limit));
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
    let found = store.ask(query!("admin/inbox"), &params).await?;
    let matching = found
        .iter()
        .filter(|row| row.get::<_, Option<&str>>("consumer").is_some());
    let listed: Vec<&Row> = matching.collect();
    let last = listed.last().filter(|_| listed.len() == limit);
    let last = last.map(|row| Cursor::at(row));
    Ok(Page {
        items: listed.iter().map(|row| message(row)).collect(),
        next: Cursor::next(last, &found, look, messages.since),
    })
}

/// Lists the messages with this id of all consumers, by consumer and source.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn of(
    store: &Postgres,
    actor: &Actor,
    message_id: &str,
) -> Result<Vec<Message>, AdminError> {
    if actor.tenant.is_some() {
        return Ok(Vec::new());
    }
    Ok(taken(store, vec![text(message_id)], None, None).await?)
}

/// Lists the rows of these messages, by message, consumer and source.
pub(super) async fn taken(
    store: &Postgres,
    message_ids: Vec<String>,
    consumer: Option<&String>,
    source: Option<&String>,
) -> Result<Vec<Message>, StoreError> {
    let (consumer, source) = (word(consumer), word(source));
    let params: [&dyn Param; 3] = [&message_ids, &consumer, &source];
    let found = store.ask(query!("admin/inbox_of"), &params).await?;
    Ok(found.iter().map(message).collect())
}

/// Messages that a page reads. This takes some tens of milliseconds.
const LOOK: i64 = 10_000;

impl Messages {
    fn fits(&self, message: &Message) -> bool {
        let same =
            |asked: &Option<String>, it: &str| asked.as_deref().is_none_or(|asked| asked == it);
        same(&self.consumer, &message.consumer)
            && same(&self.source, &message.source)
            && self.since.is_none_or(|since| message.received_at >= since)
            && self.until.is_none_or(|until| message.received_at < until)
    }
}

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
