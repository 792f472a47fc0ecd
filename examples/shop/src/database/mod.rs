//! The shop's rows: which SQL stands behind which name.
//!
//! A handler names a [`Query`] and gives parameters; which store runs it, and
//! in which dialect, is known here alone. What a handler gets back are plain
//! rows, so it is written once for every store: a [`Database`].

pub(crate) mod query;
mod value;
mod row;
pub(crate) mod sqlite;
pub(crate) mod postgres;

use std::{fmt, future::Future};

use hapax::{
    Clock,
    notify::Notifier,
    store::{Deliveries, Outbox, Phases, SagaRows, Sagas, StoreError},
};

pub(crate) use self::{
    query::Query,
    row::Row,
    value::{Value, params},
};

/// A store, and the shop's own rows in it.
pub(crate) trait Database:
    Phases<Tx: Rows> + Outbox + Deliveries + Sagas + fmt::Debug
{
    /// A statement of a single-shot request, which runs when its key is free.
    ///
    /// On PostgreSQL it takes an array for each parameter: those of a group run as one.
    fn statement(query: Query, params: Vec<Value>) -> Self::Statement;

    /// Reads rows outside any transaction, as they were committed last.
    fn select(
        &self,
        query: Query,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;

    /// Writes outside any request; says how many rows it changed.
    fn execute(
        &self,
        query: Query,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// What the relay goes by on a node whose own clock is `own`: the database's, where nodes share
    /// it.
    fn relay_clock(&self, own: &Clock) -> Clock {
        own.clone()
    }

    /// What rings after each commit that the relay should look at.
    fn notifier(&self) -> Notifier;

    /// Lets the database go; nothing is asked of it afterwards.
    fn close(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The shop's own rows, in the transaction of a request.
pub(crate) trait Rows: SagaRows {
    /// Reads rows.
    fn select(
        &mut self,
        query: Query,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;

    /// Runs a statement; says how many rows it changed.
    fn execute(
        &mut self,
        query: Query,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
}
