//! Reference service for a replay without a cache: one primary-key SELECT on SQLite per request.
//!
//! The table maps keys to bodies. A key that is missing is inserted before the response, so the
//! load generator fills the table with its first pass. By default the query runs on the blocking
//! threads of the runtime, as in usual services. With `--inline` it runs in the task of the
//! request, which blocks the runtime and gives an upper bound of the rate.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context as _;
use axum::{
    http::HeaderMap,
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, post},
};
use bytes::Bytes;
use http::StatusCode;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use tokio::{
    sync::{Mutex, Semaphore},
    task::spawn_blocking,
};

use super::answer::Answer;

/// The database, and where the query runs.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// The database file, which is created if it is missing
    #[arg(long)]
    database: PathBuf,
    /// Number of connections for reading
    #[arg(long, default_value_t = 3)]
    readers: usize,
    /// Runs the query in the task of the request
    #[arg(long)]
    inline: bool,
}

struct Rows {
    answer: Answer,
    writer: Mutex<Connection>,
    readers: std::sync::Mutex<Vec<Connection>>,
    free: Semaphore,
    inline: bool,
}

impl Flags {
    /// The route that reads its response.
    pub(super) fn orders(self, answer: Answer) -> anyhow::Result<MethodRouter> {
        let writer = Connection::open(&self.database).context("cannot open the database")?;
        writer.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        writer.execute_batch(
            "CREATE TABLE IF NOT EXISTS answer (key TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID",
        )?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let readers = (0..self.readers.max(1))
            .map(|_| Connection::open_with_flags(&self.database, flags))
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let rows = Arc::new(Rows {
            answer,
            writer: Mutex::new(writer),
            free: Semaphore::new(readers.len()),
            readers: std::sync::Mutex::new(readers),
            inline: self.inline,
        });
        Ok(post(move |headers: HeaderMap| {
            let rows = Arc::clone(&rows);
            async move { rows.respond(&headers).await }
        }))
    }
}

impl Rows {
    async fn respond(self: Arc<Self>, headers: &HeaderMap) -> Response {
        let Some(key) = headers
            .get("idempotency-key")
            .and_then(|key| key.to_str().ok())
        else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        let found = Arc::clone(&self).find(key).await;
        match found {
            Ok(Some(body)) => self.answer.respond_with(body),
            Ok(None) => match self.insert(key).await {
                Ok(()) => self.answer.respond(),
                Err(error) => failed(&error),
            },
            Err(error) => failed(&error),
        }
    }

    async fn find(self: Arc<Self>, key: &str) -> anyhow::Result<Option<Bytes>> {
        let rows = Arc::clone(&self);
        let _permit = rows.free.acquire().await?;
        if self.inline {
            return self.select(key);
        }
        let key = key.to_owned();
        spawn_blocking(move || self.select(&key)).await?
    }

    fn select(&self, key: &str) -> anyhow::Result<Option<Bytes>> {
        let pool = || {
            self.readers
                .lock()
                .map_err(|_| anyhow::anyhow!("a reader panicked"))
        };
        let reader = pool()?
            .pop()
            .context("no reader is free, although a permit was acquired")?;
        let body = reader
            .prepare_cached("SELECT body FROM answer WHERE key = ?1")
            .and_then(|mut query| {
                query
                    .query_row([key], |row| row.get::<_, Vec<u8>>(0))
                    .optional()
            });
        pool()?.push(reader);
        Ok(body?.map(Bytes::from))
    }

    async fn insert(&self, key: &str) -> anyhow::Result<()> {
        let writer = self.writer.lock().await;
        let mut insert = writer.prepare_cached("INSERT OR IGNORE INTO answer VALUES (?1, ?2)")?;
        insert.execute((key, self.answer.body().as_ref()))?;
        Ok(())
    }
}

fn failed(error: &anyhow::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")).into_response()
}
