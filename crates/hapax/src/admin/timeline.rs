//! The timeline of one request: its key, transaction and events, their deliveries to every
//! destination, and the inbox messages and sagas that resulted from them in this database.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Actor, AdminError, KeyRecord, Message, SagaLook, Trace};
use crate::outbox::OutboxEvent;

/// Queries for the timelines of requests.
#[async_trait]
pub trait TimelineAdmin: Send + Sync {
    /// The timeline of the request that emitted an event, for an event that the actor may see.
    async fn timeline_of_event(
        &self,
        actor: &Actor,
        event: Arc<OutboxEvent>,
    ) -> Result<Timeline, AdminError>;

    /// The timeline of a key. Operation and tenant may be omitted if only one key matches.
    ///
    /// `NotFound` if the key does not exist or belongs to another tenant; `Invalid` if several keys
    /// match.
    async fn timeline_of_key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: Option<&str>,
        key: &str,
    ) -> Result<Timeline, AdminError>;
}

/// What is known about one request.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The key; `None` if the request had none, or if it was purged.
    pub key: Option<KeyRecord>,
    /// The events of the request, in order.
    pub events: Vec<Emitted>,
    /// The sagas that the request started.
    pub sagas: Vec<SagaLook>,
    /// Whether the timeline is complete. If not, the search stopped before it had read all events
    /// that might belong to the request.
    pub is_whole: bool,
}

/// An event and its deliveries.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// The event.
    pub event: Arc<OutboxEvent>,
    /// The id of the transaction that wrote it.
    pub transaction: u64,
    /// Whether the same transaction stored the response of the key.
    pub is_of_answer: bool,
    /// The status at every destination.
    pub traces: Vec<Trace>,
    /// The consumers of this database that have accepted it.
    pub taken: Vec<Message>,
}
