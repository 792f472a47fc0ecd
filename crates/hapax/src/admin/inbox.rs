//! Accepted messages: which consumer accepted which message, from which source, and when.

use async_trait::async_trait;
use serde::Serialize;

use super::{Actor, AdminError, Page};
use crate::clock::Timestamp;

/// Queries for accepted messages.
#[async_trait]
pub trait InboxAdmin: Send + Sync {
    /// Lists the messages that match a filter, the newest first. Messages belong to no tenant, so an
    /// actor of a tenant sees none.
    async fn messages(
        &self,
        actor: &Actor,
        filter: &MessageFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<Message>, AdminError>;
}

/// A filter for messages. A field that is absent matches every message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageFilter {
    /// The consumer.
    pub consumer: Option<String>,
    /// The source.
    pub source: Option<String>,
    /// The id of the message; for an event, the event's id. All messages with an id are on one
    /// page, by consumer and source.
    pub message_id: Option<String>,
    /// Accepted at or after this time.
    pub since: Option<Timestamp>,
    /// Accepted before this time.
    pub until: Option<Timestamp>,
}

impl MessageFilter {
    /// Whether a message matches, except for its id.
    pub fn fits(&self, message: &Message) -> bool {
        let same =
            |asked: &Option<String>, it: &str| asked.as_deref().is_none_or(|asked| asked == it);
        same(&self.consumer, &message.consumer)
            && same(&self.source, &message.source)
            && self.since.is_none_or(|since| message.received_at >= since)
            && self.until.is_none_or(|until| message.received_at < until)
    }
}

/// An accepted message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Message {
    /// The consumer that accepted the message.
    pub consumer: String,
    /// The id of the message.
    pub message_id: String,
    /// The source of the message.
    pub source: String,
    /// The hash of the payload, in hex.
    pub payload_hash: String,
    /// When the message was accepted.
    pub received_at: Timestamp,
    /// When its processing was completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processed_at: Option<Timestamp>,
    /// The result that the consumer recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}
