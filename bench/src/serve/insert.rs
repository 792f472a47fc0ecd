//! What the shop's write is worth: axum with one bare INSERT on SQLite, a commit for each.
//!
//! No key, no stored answer, no event: a retry makes a second order, and the event is somebody
//! else's business. One thread owns the connection, WAL with `synchronous = FULL`, as the shop's
//! store has it; there is nothing to share a commit with.

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

/// Which database.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// The database file; made when missing
    #[arg(long)]
    database: PathBuf,
}

type Job = (serde_json::Value, oneshot::Sender<rusqlite::Result<()>>);

impl Flags {
    /// The route that writes.
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
                    // Who does not wait any more has gone away.
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
