//! Access to the shop's own tables, on SQLite and PostgreSQL.
//!
//! A handler names a [`Query`] and passes parameters. Only this module knows which store runs the
//! query, and in which SQL dialect. The result is plain rows, so each handler is written once for
//! all stores, against the trait [`Database`].

pub(crate) mod query;
mod value;
mod row;
pub(crate) mod sqlite;
pub(crate) mod postgres;

use std::{fmt, future::Future, sync::Arc};

use hapax::{
    Clock,
    admin::Admin,
    endpoint::EndpointStore,
    notify::Notifier,
    poll::PollStore,
    store::{Deliveries, Outbox, Phases, SagaRows, Sagas, StoreError},
};

pub(crate) use self::{
    query::Query,
    row::Row,
    value::{Value, params},
};

/// A store that also holds the shop's own tables.
pub(crate) trait Database:
    Phases<Tx: Rows> + Outbox + Deliveries + Sagas + PollStore + EndpointStore + fmt::Debug
{
    /// Builds a statement for a write plan, which runs if the key is free.
    ///
    /// On PostgreSQL the statement takes an array for each parameter, so that the same statement of
    /// all requests in a group runs once.
    fn statement(query: Query, params: Vec<Value>) -> Self::Statement;

    /// Reads the last committed rows, outside any transaction.
    fn select(
        &self,
        query: Query,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;

    /// Runs a statement outside any request; returns the number of changed rows.
    fn execute(
        &self,
        query: Query,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Returns the clock for the relay on a node whose clock is `own`.
    ///
    /// If several nodes can share the database, this is the clock of the database.
    fn relay_clock(&self, own: &Clock) -> Clock {
        own.clone()
    }

    /// Returns the store as operators see it.
    fn admin(&self) -> anyhow::Result<Arc<dyn Admin>>;

    /// Returns the notifier that wakes the relay after each commit with work for it.
    fn notifier(&self) -> Notifier;

    /// Closes the database; it must not be used afterwards.
    fn close(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Access to the shop's own tables in the transaction of a request.
pub(crate) trait Rows: SagaRows {
    /// Reads rows.
    fn select(
        &mut self,
        query: Query,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;

    /// Runs a statement; returns the number of changed rows.
    fn execute(
        &mut self,
        query: Query,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
}
