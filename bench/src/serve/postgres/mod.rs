//! The reference services on PostgreSQL.
//!
//! They write to the table of the shop, parse the order like the shop, prepare their statements and
//! use a connection pool. Neither they nor the shop use TLS.

mod insert;
mod transaction;
mod naive;
mod atomic;
mod select;

use anyhow::Context as _;
use axum::{
    response::{IntoResponse as _, Response},
    routing::MethodRouter,
};
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use hapax::Timestamp;
use http::StatusCode;
use serde::Deserialize;
use tokio_postgres::{NoTls, types::ToSql};

use super::answer::Answer;
use crate::sources;

pub(super) use atomic::{Claims, orders as atomic};

/// The migration of the shop, so that all services write the same rows.
const SHOP: &str = include_str!("../../../../examples/shop/migrations/postgres/0001_shop.sql");
/// Inserts one order.
pub(crate) const ORDER_INSERT: &str = "\
INSERT INTO shop_order
    (tenant, id, customer_id, amount, currency, note, version, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $7)";
/// The tenant of the orders.
const TENANT: &str = "bench";

/// The database and the size of the connection pool.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// The database, as postgres://USER@HOST:PORT/NAME; missing tables are created
    #[arg(long, value_name = "URL")]
    database: String,
    /// Size of the connection pool
    #[arg(long, default_value_t = 16)]
    pool: usize,
}

/// A service with a connection pool.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Insert,
    Transaction,
    Naive,
    Select,
}

impl Flags {
    /// The route of the service.
    pub(super) async fn orders(self, kind: Kind, answer: Answer) -> anyhow::Result<MethodRouter> {
        make_tables(&self.database).await?;
        let pool = pool(&self.database, self.pool)?;
        Ok(match kind {
            Kind::Insert => insert::orders(pool, answer),
            Kind::Transaction => transaction::orders(pool, answer),
            Kind::Naive => naive::orders(pool, answer).await?,
            Kind::Select => select::orders(pool, answer).await?,
        })
    }
}

/// A pool of connections.
pub(crate) fn pool(url: &str, size: usize) -> anyhow::Result<Pool> {
    let config = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    let manager = Manager::from_config(url.parse()?, NoTls, config);
    Ok(Pool::builder(manager).max_size(size.max(1)).build()?)
}

/// Creates the tables of the shop if they are missing.
pub(crate) async fn make_tables(url: &str) -> anyhow::Result<()> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .context("cannot connect to the database")?;
    tokio::spawn(connection);
    let there = "SELECT to_regclass('shop_order') IS NOT NULL";
    if !client.query_one(there, &[]).await?.get::<_, bool>(0) {
        let made = client.batch_execute(SHOP).await;
        made.context("cannot create the tables of the shop")?;
    }
    Ok(())
}

/// An order as the client sends it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stated {
    customer_id: String,
    amount: i64,
    currency: String,
    note: Option<String>,
}

/// An order as it is stored, with an id that increases with time.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) id: String,
    stated: Stated,
    now: i64,
}

impl Order {
    pub(crate) fn of(stated: Stated) -> Self {
        let now = Timestamp::from(sources::now()).as_millis();
        let id = format!("ord_{now:012x}{:024x}", sources::bits());
        Self { id, stated, now }
    }

    /// The parameters of [`ORDER_INSERT`].
    pub(crate) fn row(&self) -> [&(dyn ToSql + Sync); 7] {
        let Stated {
            customer_id,
            amount,
            currency,
            note,
        } = &self.stated;
        [
            &TENANT,
            &self.id,
            customer_id,
            amount,
            currency,
            note,
            &self.now,
        ]
    }
}

/// Runs one prepared statement.
async fn run(
    client: &Object,
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<u64, tokio_postgres::Error> {
    let statement = client.prepare_cached(sql).await?;
    client.execute(&statement, params).await
}

/// The recorded response if the work succeeded, otherwise the error.
fn answered(done: anyhow::Result<()>, answer: &Answer) -> Response {
    match done {
        Ok(()) => answer.respond(),
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")).into_response()
}
