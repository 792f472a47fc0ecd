//! Transactions that emit one event with a payload of a chosen size, on SQLite or PostgreSQL.
//!
//! They write nothing else, and there is no HTTP. The command prints `RATE P50_MS P99_MS`.

use std::{fmt::Write as _, time::Duration};

use anyhow::Context as _;
use hapax::{
    event::{Headers, NewEvent, Payload},
    store::{Keys, Transaction as _},
};
use hapax_postgres::Postgres;
use hapax_sqlite::Sqlite;

use crate::{
    sources::{bits, clock, random},
    transact::measured,
};

/// Runs transactions with one event.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The database: a file, or postgres://USER@HOST:PORT/NAME; missing tables are created
    #[arg(long)]
    database: String,
    /// Size of the payload in bytes
    #[arg(long, default_value_t = 1_000)]
    bytes: usize,
    /// Number of tasks that run transactions
    #[arg(long, default_value_t = 64)]
    tasks: usize,
    /// Milliseconds of warm-up, which are not counted
    #[arg(long, default_value_t = 1_000)]
    warm_up_ms: u64,
    /// Milliseconds that are counted
    #[arg(long, default_value_t = 5_000)]
    window_ms: u64,
}

impl Flags {
    /// Runs the part and returns the text to print.
    pub(crate) async fn run(self) -> anyhow::Result<String> {
        if self.database.starts_with("postgres") {
            let settings = hapax_postgres::Settings::new(&self.database, clock(), random());
            let store = Postgres::open(settings).await;
            return self.transact(store.context("cannot open the store")?).await;
        }
        let settings = hapax_sqlite::Settings::new(&self.database, clock(), random());
        let store = Sqlite::open(settings).context("cannot open the store")?;
        let said = self.transact(store.clone()).await?;
        store.close().await?;
        Ok(said)
    }

    async fn transact<K: Keys>(&self, store: K) -> anyhow::Result<String> {
        let payload = payload(self.bytes);
        let warm_up = Duration::from_millis(self.warm_up_ms);
        let window = Duration::from_millis(self.window_ms.max(1));
        measured(self.tasks, warm_up, window, move || {
            emit(store.clone(), payload.clone())
        })
        .await
    }
}

async fn emit<K: Keys>(store: K, payload: String) -> anyhow::Result<()> {
    let mut tx = store.begin(None, Headers::new()).await?;
    tx.emit(NewEvent::new("order.created", Payload::Json(payload)))?;
    tx.commit().await?;
    Ok(())
}

/// A JSON string of this size, of two bytes at least. Its digits are random, because PostgreSQL
/// compresses what repeats.
fn payload(bytes: usize) -> String {
    let mut text = String::from("\"");
    while text.len() + 1 < bytes {
        let _ = write!(text, "{:016x}", bits());
    }
    text.truncate(bytes.max(2) - 1);
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_json_of_its_size() {
        for bytes in [2, 3, 17, 100, 100_000] {
            let text = payload(bytes);
            assert_eq!(text.len(), bytes);
            assert!(serde_json::from_str::<String>(&text).is_ok(), "{text}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn transactions_on_a_file_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let flags = Flags {
            database: folder.path().join("payload.db").display().to_string(),
            bytes: 10_000,
            tasks: 4,
            warm_up_ms: 1,
            window_ms: 50,
        };
        let said = flags.run().await.unwrap();
        assert_eq!(said.split_whitespace().count(), 3, "{said}");
    }
}
