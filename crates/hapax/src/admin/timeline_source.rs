//! The rows that a store reads for timelines, from which they are assembled.
//!
//! A store that implements [`TimelineSource`] implements [`TimelineAdmin`](super::TimelineAdmin).

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{
    Actor, AdminError, DestinationAdmin, EventAdmin, KeyAdmin, KeyRecord, Message, SagaAdmin,
};
use crate::{clock::Timestamp, key::Tenant, outbox::OutboxEvent};

/// The queries of a store from which timelines are assembled.
#[async_trait]
pub trait TimelineSource: EventAdmin + KeyAdmin + SagaAdmin + DestinationAdmin {
    /// The number of the transaction that wrote the event at a position; 0 if there is none.
    async fn transaction_of(&self, position: i64) -> Result<i64, AdminError>;

    /// The number in the row of a key that the transaction with this number wrote. Keys may contain
    /// only a part of it.
    fn in_key(&self, transaction: i64) -> i64 {
        transaction
    }

    /// Reads the only key that matches.
    ///
    /// Fails like [`KeyAdmin::key`]; also `Invalid` if several operations match.
    async fn found_key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: Option<&str>,
        key: &str,
    ) -> Result<FoundKey, AdminError>;

    /// Finds the events between two times, in order, that [match](MatchingEvents::event) and that the
    /// actor may see: one more than [`RequestSeek::EVENTS`], unless the search ends before.
    async fn matching_events(
        &self,
        actor: &Actor,
        seek: &RequestSeek,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<MatchingEvents, AdminError>;

    /// Finds the ids of sagas that were started between two times, with a text in their headers,
    /// and that the actor may see: at most [`RequestSeek::SAGAS`].
    async fn sagas_with(
        &self,
        actor: &Actor,
        text: &str,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<String>, AdminError>;

    /// Lists the messages with these ids, by id, consumer and source.
    async fn messages_with(&self, ids: Vec<String>) -> Result<Vec<Message>, AdminError>;
}

/// A key and what identifies the last change of its row.
#[derive(Clone, Debug)]
pub struct FoundKey {
    /// The key.
    pub record: KeyRecord,
    /// The number of the transaction that last wrote it, as in its row.
    pub transaction: i64,
    /// When it was read, by the database's clock.
    pub at: Timestamp,
}

/// The criteria by which the events and sagas of a request are found.
#[derive(Clone, Debug)]
pub struct RequestSeek {
    /// The short hash of the key.
    pub hash: Option<String>,
    /// The tenant, because another one may use the same key at the same time.
    pub tenant: Option<Tenant>,
    /// The number of the transaction, as in the row of a key.
    pub transaction: i64,
    /// The transactions that last wrote other keys of the same name, for other operations.
    pub(super) others: Vec<i64>,
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

impl RequestSeek {
    /// The header of an event that contains the short hash of its key.
    pub const KEY_HASH: &str = "idempotency_key_hash";
    /// Maximum number of events in a timeline.
    pub const EVENTS: usize = 100;
    /// Maximum number of sagas in a timeline.
    pub const SAGAS: usize = 20;
    /// Maximum difference between the clocks of producers for which a search by time is complete.
    pub const SKEW: Duration = Duration::from_mins(5);
}

/// Events that may belong to a request.
#[derive(Debug, Default)]
pub struct MatchingEvents {
    pub(super) events: Vec<(Arc<OutboxEvent>, i64)>,
    pub(super) is_cut: bool,
}

impl MatchingEvents {
    /// Adds an event and the number of its transaction, if it belongs to the request.
    pub fn event(
        &mut self,
        seek: &RequestSeek,
        event: Arc<OutboxEvent>,
        transaction: i64,
        in_key: i64,
    ) {
        // Stores also find the hash in other headers, where it does not count.
        let fits = match event.event.headers.get(RequestSeek::KEY_HASH) {
            Some(says) => {
                seek.hash.as_ref() == Some(says)
                    && event.event.tenant == seek.tenant
                    && !seek.others.contains(&in_key)
            }
            None => in_key == seek.transaction,
        };
        if fits {
            self.events.push((event, transaction));
        }
    }

    /// Whether there are more events than a timeline shows.
    pub fn is_full(&self) -> bool {
        self.events.len() > RequestSeek::EVENTS
    }

    /// Notes that the search ended before it had read all events between the two times.
    pub fn cut(&mut self) {
        self.is_cut = true;
    }
}
