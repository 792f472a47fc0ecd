//! Reference service for the shop's write: axum with one bare INSERT on SQLite per request.
//!
//! It has no key, no stored response and no event, so a retry creates a second order. One thread
//! owns the connection, with WAL and `synchronous = FULL` like the store of the shop. Each request
//! has a separate commit.

use std::{path::PathBuf, sync::mpsc, thread};

use anyhow::Context as _;
use axum::{
    Json,
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, post},
};
use http::StatusCode;
use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use super::answer::Answer;

/// The database.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// The database file, which is created if it is missing
    #[arg(long)]
    database: PathBuf,
}

type Job = (serde_json::Value, oneshot::Sender<rusqlite::Result<()>>);

impl Flags {
    /// The route that writes an order.
    pub(super) fn orders(self, answer: Answer) -> anyhow::Result<MethodRouter> {
        let conn = Connection::open(&self.database).context("cannot open the database")?;
        conn.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        conn.pragma_update(None, "synchronous", "full")?;
        conn.execute_batch(
            "CREATE TABLE IF NOT EXISTS shop_order (
                 id INTEGER PRIMARY KEY, customer_id TEXT, amount INTEGER, currency TEXT, note TEXT)",
        )?;
        let (jobs, waiting) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || {
                for (order, reply) in waiting {
                    // The receiver is gone if the client has disconnected.
                    let _ = reply.send(insert(&conn, &order));
                }
            })?;
        Ok(post(move |Json(order): Json<serde_json::Value>| {
            let (jobs, answer) = (jobs.clone(), answer.clone());
            async move {
                let (reply, written) = oneshot::channel();
                match jobs.send((order, reply)) {
                    Ok(()) if matches!(written.await, Ok(Ok(()))) => answer.respond(),
                    _ => failed(),
                }
            }
        }))
    }
}

fn insert(conn: &Connection, order: &serde_json::Value) -> rusqlite::Result<()> {
    let sql = "INSERT INTO shop_order (customer_id, amount, currency, note) VALUES (?, ?, ?, ?)";
    let text = |member: &str| order[member].as_str();
    let row = params![
        text("customer_id"),
        order["amount"].as_i64(),
        text("currency"),
        text("note")
    ];
    conn.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

fn failed() -> Response {
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}
