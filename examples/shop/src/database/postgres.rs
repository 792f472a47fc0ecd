//! The shop's tables in a PostgreSQL database, which several instances can share.

use std::sync::Arc;

use hapax::{Clock, admin::Admin, notify::Notifier, store::StoreError};
use hapax_postgres::{
    Migration, OpenError, Postgres, Settings, Statement, Tx,
    tokio_postgres::{self, types::ToSql},
};

use super::{Database, Query, Row, Rows, Value};
use crate::config::DatabaseLocation;

/// The migrations of the shop's tables.
pub(crate) const MIGRATIONS: &[Migration<'_>] = &[
    (
        1,
        "shop",
        include_str!("../../migrations/postgres/0001_shop.sql"),
    ),
    (
        2,
        "provider",
        include_str!("../../migrations/postgres/0002_provider.sql"),
    ),
    (
        3,
        "uploads",
        include_str!("../../migrations/postgres/0003_uploads.sql"),
    ),
    (
        4,
        "stock",
        include_str!("../../migrations/postgres/0004_stock.sql"),
    ),
    (
        5,
        "customers",
        include_str!("../../migrations/postgres/0005_customers.sql"),
    ),
];

/// Connects to the database and migrates the shop's tables; error messages name it `place`.
pub(crate) async fn open(settings: Settings, place: &DatabaseLocation) -> anyhow::Result<Postgres> {
    let opened = async {
        let store = Postgres::open(settings).await?;
        store.migrate("shop", MIGRATIONS).await?;
        Ok(store)
    };
    opened.await.map_err(|error: OpenError| {
        let advice = match error {
            OpenError::Settings { .. } => ": correct --database",
            OpenError::Unavailable { .. } => ": is the server up, and may this role connect?",
            _ => "",
        };
        let what = format!("database {place} cannot be used{advice}");
        anyhow::Error::new(error).context(what)
    })
}

impl Database for Postgres {
    fn relay_clock(&self, _: &Clock) -> Clock {
        self.database_clock()
    }

    fn statement(query: Query, params: Vec<Value>) -> Statement {
        Statement::each(query.postgres, owned(params))
    }

    async fn select(&self, query: Query, params: Vec<Value>) -> Result<Vec<Row>, StoreError> {
        let params = owned(params);
        let rows = self.read(query.postgres, &borrowed(&params)).await?;
        Row::all(&rows)
    }

    async fn execute(&self, query: Query, params: Vec<Value>) -> Result<u64, StoreError> {
        use hapax::store::{Keys as _, Transaction as _};
        let mut tx = self.begin(None, hapax::event::Headers::new()).await?;
        let changed = Rows::execute(&mut tx, query, params).await?;
        tx.commit().await?;
        Ok(changed)
    }

    fn admin(&self) -> anyhow::Result<Arc<dyn Admin>> {
        Ok(Arc::new(self.clone()))
    }

    fn notifier(&self) -> Notifier {
        Postgres::notifier(self)
    }

    async fn close(&self) -> Result<(), StoreError> {
        Postgres::close(self);
        Ok(())
    }
}

impl Rows for Tx {
    async fn select(&mut self, query: Query, params: Vec<Value>) -> Result<Vec<Row>, StoreError> {
        let params = owned(params);
        let rows = self.query(query.postgres, &borrowed(&params)).await?;
        Row::all(&rows)
    }

    async fn execute(&mut self, query: Query, params: Vec<Value>) -> Result<u64, StoreError> {
        let params = owned(params);
        Tx::execute(self, query.postgres, &borrowed(&params)).await
    }
}

fn owned(params: Vec<Value>) -> Vec<hapax_postgres::Value> {
    params.into_iter().map(Into::into).collect()
}

fn borrowed(params: &[hapax_postgres::Value]) -> Vec<&(dyn ToSql + Sync)> {
    params.iter().map(|param| param as _).collect()
}

impl Row {
    /// The rows of a result.
    fn all(rows: &[tokio_postgres::Row]) -> Result<Vec<Self>, StoreError> {
        let columns = rows.first().map_or(&[][..], |row| row.columns());
        let columns = columns.iter().map(|column| column.name().to_owned());
        let columns: Arc<[String]> = columns.collect();
        rows.iter().map(|row| Self::of(row, &columns)).collect()
    }

    fn of(row: &tokio_postgres::Row, columns: &Arc<[String]>) -> Result<Self, StoreError> {
        let values = (0..columns.len()).map(|place| match row.try_get(place) {
            Ok(hapax_postgres::Value::Null) => Ok(Value::Null),
            Ok(hapax_postgres::Value::Integer(number)) => Ok(Value::Integer(number)),
            Ok(hapax_postgres::Value::Text(text)) => Ok(Value::Text(text)),
            Ok(hapax_postgres::Value::Blob(bytes)) => Ok(Value::Bytes(bytes)),
            Ok(_) => Err("its type is not one that the shop uses".to_owned()),
            Err(error) => Err(error.to_string()),
        });
        let values = values.collect::<Result<_, _>>();
        let values = values.map_err(|problem: String| StoreError::Corrupt {
            what: format!("a column of the shop's tables: {problem}"),
        })?;
        Ok(Self {
            columns: Arc::clone(columns),
            values,
        })
    }
}

impl From<Value> for hapax_postgres::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Integer(number) => Self::Integer(number),
            Value::Text(text) => Self::Text(text),
            Value::Bytes(bytes) => Self::Blob(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::query;

    #[tokio::test]
    async fn every_query_is_good_sql_for_a_fresh_database() {
        let database = hapax_testkit::postgres::Database::fresh().await;
        let client = database.client().await;
        for (_, _, sql) in MIGRATIONS {
            client.batch_execute(sql).await.unwrap();
        }
        for (name, query) in query::ALL {
            let prepared = client.prepare(query.postgres).await;
            prepared.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
