//! The shop's rows: which SQL stands behind which name.
//!
//! A handler names a [`Query`] and gives parameters; which store runs it, and
//! in which dialect, is known here alone. What a handler gets back are plain
//! rows, so it is written once for every store.

pub(crate) mod query;
mod row;

use hapax::store::StoreError;
use hapax_sqlite::{Sqlite, rusqlite};

pub(crate) use self::{query::Query, row::Row};

/// A transaction of the store that this build knows.
pub(crate) type Tx = hapax_sqlite::Tx;
/// A statement of a single-shot request.
pub(crate) type Statement = hapax_sqlite::Statement;
/// A parameter or a column.
pub(crate) type Value = rusqlite::types::Value;

/// The shop's tables.
pub(crate) const MIGRATIONS: &[hapax_sqlite::Migration<'_>] = &[(
    1,
    "shop",
    include_str!("../../migrations/sqlite/0001_shop.sql"),
)];

/// The tables of the demo's receiver, in a database of its own.
pub(crate) const RECEIVER_MIGRATIONS: &[hapax_sqlite::Migration<'_>] = &[(
    1,
    "event",
    include_str!("../../migrations/sqlite/receiver_0001_event.sql"),
)];

/// Builds the parameters of a query.
macro_rules! params {
    ($($value:expr),* $(,)?) => { vec![$($crate::database::Value::from($value)),*] };
}
pub(crate) use params;

/// A statement that runs when its request's key is free.
pub(crate) fn statement(query: Query, params: Vec<Value>) -> Statement {
    Statement {
        sql: query.sqlite.into(),
        params,
    }
}

/// Runs a statement in a request's transaction; says how many rows it changed.
pub(crate) async fn execute(
    tx: &mut Tx,
    query: Query,
    params: Vec<Value>,
) -> Result<usize, StoreError> {
    tx.with(move |connection| {
        let mut statement = connection.prepare_cached(query.sqlite)?;
        statement.execute(rusqlite::params_from_iter(params))
    })
    .await
}

/// Reads rows in a request's transaction.
pub(crate) async fn select(
    tx: &mut Tx,
    query: Query,
    params: Vec<Value>,
) -> Result<Vec<Row>, StoreError> {
    tx.with(move |connection| rows(connection, query, params))
        .await
}

/// Reads rows outside any transaction, as they were committed last.
pub(crate) async fn read(
    store: &Sqlite,
    query: Query,
    params: Vec<Value>,
) -> Result<Vec<Row>, StoreError> {
    store
        .read(move |connection| rows(connection, query, params))
        .await
}

/// Writes outside any request.
pub(crate) async fn write(
    store: &Sqlite,
    query: Query,
    params: Vec<Value>,
) -> Result<usize, StoreError> {
    let run = move |connection: &rusqlite::Connection| {
        let mut statement = connection.prepare_cached(query.sqlite)?;
        statement.execute(rusqlite::params_from_iter(params))
    };
    store.write(run).await
}

fn rows(
    connection: &rusqlite::Connection,
    query: Query,
    params: Vec<Value>,
) -> rusqlite::Result<Vec<Row>> {
    let mut statement = connection.prepare_cached(query.sqlite)?;
    let columns = statement.column_count();
    let mut rows = statement.query(rusqlite::params_from_iter(params))?;
    let mut read = Vec::new();
    while let Some(row) = rows.next()? {
        read.push(Row((0..columns)
            .map(|column| row.get(column))
            .collect::<Result<_, _>>()?));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_is_good_sql_for_a_fresh_database() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        for (_, _, sql) in MIGRATIONS.iter().chain(RECEIVER_MIGRATIONS) {
            connection.execute_batch(sql).unwrap();
        }
        for (name, query) in query::ALL {
            assert!(
                query
                    .sqlite
                    .trim_start()
                    .starts_with(|c: char| c.is_ascii_uppercase()),
                "{name}"
            );
            connection
                .prepare(query.sqlite)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn every_query_file_has_a_name() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/queries/sqlite");
        let nouns = std::fs::read_dir(folder)
            .unwrap()
            .map(|noun| noun.unwrap().path());
        let files = nouns
            .flat_map(|noun| std::fs::read_dir(noun).unwrap())
            .count();
        assert_eq!(files, query::ALL.len());
    }
}
