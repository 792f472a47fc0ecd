//! The interface of a store for polling.

use std::{cmp::Ordering, future::Future, sync::Arc};

use super::{endpoint::Endpoint, token::TokenHash};
use crate::{
    delivery::{Frontier, Start},
    event::EventId,
    key::Tenant,
    outbox::OutboxEvent,
    store::{Source, StoreError},
};

/// A store whose outbox can be polled.
///
/// Every frontier that is passed in was returned by this store, before or after a restart, a failover
/// or a restore. [`Source::read`] and the methods below fail with
/// [`SetBack`](StoreError::SetBack) if the store is not in the history in which it was read, unless
/// it is the committed position of an endpoint, which the store has.
pub trait PollStore: Source {
    /// Reads an endpoint by its name. The hashes of the previous tokens are returned while they are
    /// valid, by the clock of the store.
    fn find_endpoint(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Option<Endpoint>, StoreError>> + Send;

    /// Reads the endpoint that has a token, as its current one or as a previous one while that is
    /// valid.
    fn find_endpoint_by_token(
        &self,
        token: &TokenHash,
    ) -> impl Future<Output = Result<Option<Endpoint>, StoreError>> + Send;

    /// Reads an event of a tenant, or of any, by its id: at a position, or else among the events that
    /// were written about the time in the id.
    fn find_event(
        &self,
        tenant: Option<&Tenant>,
        id: EventId,
        position: Option<i64>,
    ) -> impl Future<Output = Result<Option<Arc<OutboxEvent>>, StoreError>> + Send;

    /// The position at which a consumer starts that starts now, at a time, or with the oldest event
    /// that was not purged. As with [`record_start`](crate::store::Starts::record_start), no event is
    /// skipped whose transaction commits later.
    fn start_frontier(
        &self,
        start: Start,
    ) -> impl Future<Output = Result<Frontier, StoreError>> + Send;

    /// Moves the committed position of an endpoint from `endpoint.committed` to `to`. Returns false,
    /// and changes nothing, if the position is another one by now or the endpoint was removed.
    fn move_committed(
        &self,
        endpoint: &Endpoint,
        to: &Frontier,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Whether events after a frontier may have been purged, of any tenant.
    fn is_purged(
        &self,
        frontier: &Frontier,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Compares two frontiers by how far they have read. Returns `None` if each may contain an event
    /// that the other does not.
    ///
    /// # Errors
    /// Fails if one of them is not a frontier of this kind of store.
    fn compare_frontiers(
        &self,
        one: &Frontier,
        other: &Frontier,
    ) -> Result<Option<Ordering>, StoreError>;

    /// Records that an endpoint was polled now.
    fn note_poll(&self, endpoint: &Endpoint)
    -> impl Future<Output = Result<(), StoreError>> + Send;
}
