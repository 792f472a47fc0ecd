//! The shop's tables in one SQLite file.

use std::sync::Arc;

use anyhow::Context as _;
use hapax::{admin::Admin, notify::Notifier, store::StoreError};
use hapax_sqlite::{
    Migration, Settings, Sqlite, Statement, Tx,
    rusqlite::{self, Connection, ToSql, params_from_iter, types},
};

use super::{Database, Query, Row, Rows, Value};

/// The migrations of the shop's tables.
pub(crate) const MIGRATIONS: &[Migration<'_>] = &[
    (
        1,
        "shop",
        include_str!("../../migrations/sqlite/0001_shop.sql"),
    ),
    (
        2,
        "provider",
        include_str!("../../migrations/sqlite/0002_provider.sql"),
    ),
    (
        3,
        "uploads",
        include_str!("../../migrations/sqlite/0003_uploads.sql"),
    ),
    (
        4,
        "stock",
        include_str!("../../migrations/sqlite/0004_stock.sql"),
    ),
    (
        5,
        "customers",
        include_str!("../../migrations/sqlite/0005_customers.sql"),
    ),
];

/// Opens the file and migrates the tables of `namespace`.
pub(crate) async fn open(
    settings: Settings,
    namespace: &str,
    migrations: &[Migration<'_>],
) -> anyhow::Result<Sqlite> {
    let path = settings.path.clone();
    let store = Sqlite::open(settings)?;
    store
        .migrate(namespace, migrations)
        .await
        .with_context(|| format!("cannot migrate database {}", path.display()))?;
    Ok(store)
}

impl Database for Sqlite {
    fn statement(query: Query, params: Vec<Value>) -> Statement {
        Statement {
            sql: query.sqlite.into(),
            params: params.into_iter().map(Into::into).collect(),
        }
    }

    async fn select(&self, query: Query, params: Vec<Value>) -> Result<Vec<Row>, StoreError> {
        self.read(move |connection| rows(connection, query.sqlite, &params))
            .await
    }

    async fn execute(&self, query: Query, params: Vec<Value>) -> Result<u64, StoreError> {
        self.write(move |connection| change(connection, query.sqlite, &params))
            .await
    }

    fn admin(&self) -> anyhow::Result<Arc<dyn Admin>> {
        Ok(Arc::new(Sqlite::admin(self)?))
    }

    fn notifier(&self) -> Notifier {
        Sqlite::notifier(self)
    }

    async fn close(&self) -> Result<(), StoreError> {
        Sqlite::close(self).await
    }
}

impl Rows for Tx {
    async fn select(&mut self, query: Query, params: Vec<Value>) -> Result<Vec<Row>, StoreError> {
        self.with(move |connection| rows(connection, query.sqlite, &params))
            .await
    }

    async fn execute(&mut self, query: Query, params: Vec<Value>) -> Result<u64, StoreError> {
        self.with(move |connection| change(connection, query.sqlite, &params))
            .await
    }
}

/// Runs a statement; returns the number of changed rows.
pub(crate) fn change(
    connection: &Connection,
    sql: &str,
    params: &[Value],
) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(sql)?;
    let changed = statement.execute(params_from_iter(params))?;
    Ok(changed as u64)
}

/// Runs a statement and collects its rows.
pub(crate) fn rows(
    connection: &Connection,
    sql: &str,
    params: &[Value],
) -> rusqlite::Result<Vec<Row>> {
    let mut statement = connection.prepare_cached(sql)?;
    let names = statement.column_names().map(str::to_owned);
    let columns: Arc<[String]> = names.collect();
    let mut rows = statement.query(params_from_iter(params))?;
    let mut read = Vec::new();
    while let Some(row) = rows.next()? {
        let values = (0..columns.len()).map(|place| row.get(place));
        read.push(Row {
            values: values.collect::<Result<_, _>>()?,
            columns: Arc::clone(&columns),
        });
    }
    Ok(read)
}

impl From<Value> for types::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Integer(number) => Self::Integer(number),
            Value::Text(text) => Self::Text(text),
            Value::Bytes(bytes) => Self::Blob(bytes),
        }
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<types::ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => types::Null.into(),
            Self::Integer(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
            Self::Bytes(bytes) => bytes.as_slice().into(),
        })
    }
}

impl types::FromSql for Value {
    fn column_result(value: types::ValueRef<'_>) -> types::FromSqlResult<Self> {
        match value {
            types::ValueRef::Null => Ok(Self::Null),
            types::ValueRef::Integer(number) => Ok(Self::Integer(number)),
            types::ValueRef::Text(_) => Ok(Self::Text(value.as_str()?.to_owned())),
            types::ValueRef::Blob(bytes) => Ok(Self::Bytes(bytes.to_owned())),
            types::ValueRef::Real(_) => Err(types::FromSqlError::InvalidType),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::query;

    #[test]
    fn every_query_is_good_sql_for_a_fresh_database() {
        let connection = Connection::open_in_memory().unwrap();
        for (_, _, sql) in MIGRATIONS {
            connection.execute_batch(sql).unwrap();
        }
        for (name, query) in query::ALL {
            connection
                .prepare(query.sqlite)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
