//! Statements of the service, whose texts and types Hapax does not know.
//!
//! Without a pooler they are prepared once for each connection. With a pooler in transaction mode,
//! a prepared statement would stay on a server connection that other clients use too, under a name
//! that another process may also use. So a statement is prepared only to learn the types of its
//! parameters, is closed again in the same transaction, and is then sent unnamed. The types are
//! remembered, so the next time it takes one round trip.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::TryStreamExt as _;
use tokio_postgres::{
    Column, Error, Row, RowStream,
    types::{ToSql, Type},
};

use crate::{
    connection::{Link, STATEMENTS_MAX},
    query,
};

/// The types of the parameters of statements that were seen before.
#[derive(Debug, Default)]
pub(crate) struct KnownTypes(Mutex<HashMap<String, Arc<[Type]>>>);

impl Link {
    /// Sends a statement of the service. Returns its rows and the number of affected rows.
    ///
    /// With a pooler, this requires a transaction.
    pub(crate) async fn theirs(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<(Vec<Row>, u64), Error> {
        if self.is_pooled() {
            return self.unnamed(sql, params).await;
        }
        let statement = self.prepared(sql).await?;
        let params = params.iter().copied();
        collect(self.object().query_raw(&statement, params).await?).await
    }

    async fn unnamed(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<(Vec<Row>, u64), Error> {
        let known = &self.shared().known;
        let types = match known.find(sql) {
            Some(types) => types,
            None => self.learn(sql).await?,
        };
        // One parameter too many has a type all the same, so that the server hears of it.
        let of_types = types.iter().cloned();
        let of_types = of_types.chain(std::iter::repeat(Type::UNKNOWN));
        let params = params.iter().copied().zip(of_types);
        let sent = async { collect(self.object().query_typed_raw(sql, params).await?).await };
        let answered = sent.await;
        if answered.is_err() {
            // The tables may have changed.
            known.forget(sql);
        }
        answered
    }

    /// Asks the server of which types the parameters of a statement are, and leaves nothing there.
    async fn learn(&self, sql: &str) -> Result<Arc<[Type]>, Error> {
        let statement = self.object().prepare(sql).await?;
        let types: Arc<[Type]> = statement.params().into();
        let columns = statement.columns().iter().map(Column::type_);
        if columns.chain(statement.params()).all(is_built_in) {
            self.shared().known.learn(sql, &types);
        } else {
            // To know a type of the database's own the driver has prepared statements, which it
            // keeps and which it would use again on another server connection.
            self.taint();
            self.run(query!("session/forget")).await?;
        }
        Ok(types)
    }
}

impl KnownTypes {
    fn find(&self, sql: &str) -> Option<Arc<[Type]>> {
        self.lock().get(sql).cloned()
    }

    fn learn(&self, sql: &str, types: &Arc<[Type]>) {
        let mut known = self.lock();
        if known.len() >= STATEMENTS_MAX {
            known.clear();
        }
        known.insert(sql.to_owned(), Arc::clone(types));
    }

    fn forget(&self, sql: &str) {
        self.lock().remove(sql);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<[Type]>>> {
        // The map is consistent even if a panic poisoned the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_built_in(of_type: &Type) -> bool {
    Type::from_oid(of_type.oid()).is_some()
}

async fn collect(rows: RowStream) -> Result<(Vec<Row>, u64), Error> {
    let mut rows = std::pin::pin!(rows);
    let mut all = Vec::new();
    while let Some(row) = rows.try_next().await? {
        all.push(row);
    }
    Ok((all, rows.rows_affected().unwrap_or(0)))
}
