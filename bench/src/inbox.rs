//! Accepts messages in an inbox with millions of rows, without HTTP and without an effect.
//!
//! `fill` writes the rows. The other kinds accept messages for some time, on SQLite or PostgreSQL,
//! and print `RATE P50_MS P99_MS`. With `--front`, the newest messages are also in a set in memory,
//! which is asked first. The set is exact: a message that it contains is a duplicate.

use std::{collections::HashMap, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use hapax::{
    event::Headers,
    inbox::{Acceptance, Message},
    store::{Keys, Transaction as _},
};
use hapax_postgres::Postgres;
use hapax_sqlite::Sqlite;
use rusqlite::{Connection, params};
use tokio_postgres::NoTls;

use crate::{
    ORDER,
    sources::{bits, clock, random},
    transact::measured,
};

/// The newest messages: those that senders deliver again, and those in the set.
const RECENT: u64 = 100_000;
/// Rows per statement of `fill`.
const BATCH: u64 = 500_000;
/// Ids are in ascending order here, so that filling is fast. The messages that are accepted later
/// are anywhere between them, as random ids are.
const FILL_SERVER: &str = "
    INSERT INTO hapax.inbox_message
        (consumer, message_id, source, payload_hash, received_at, processed_at)
    SELECT 'bench', 'msg_' || lpad(to_hex(n), 8, '0'), 'bench', $1::bytea,
           now() - interval '1 hour' + n * interval '1 microsecond', now()
    FROM generate_series($2::int8, $3::int8) AS n";
const FILL_FILE: &str = "
    WITH RECURSIVE number (n) AS (
        SELECT ?2 UNION ALL SELECT n + 1 FROM number WHERE n < ?3
    )
    INSERT INTO hapax_inbox_message
        (consumer, message_id, source, payload_hash, received_at, processed_at)
    SELECT 'bench', printf('msg_%08x', n), 'bench', ?1, ?4 + n / 1000, ?4 + n / 1000
    FROM number";

/// Fills an inbox, or accepts messages in it.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The database: a file, or postgres://USER@HOST:PORT/NAME
    #[arg(long)]
    database: String,
    /// Number of rows of the inbox
    #[arg(long, default_value_t = 10_000_000)]
    messages: u64,
    /// Number of tasks that accept messages
    #[arg(long, default_value_t = 64)]
    tasks: usize,
    /// Milliseconds of warm-up, which are not counted
    #[arg(long, default_value_t = 1_000)]
    warm_up_ms: u64,
    /// Milliseconds that are counted
    #[arg(long, default_value_t = 5_000)]
    window_ms: u64,
    /// Asks a set of the newest messages in memory before the store
    #[arg(long)]
    front: bool,
    kind: Kind,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Writes the rows
    Fill,
    /// Accepts new messages
    New,
    /// Accepts duplicates of the newest messages
    Recent,
    /// Accepts duplicates of any messages
    Any,
}

/// The payload hashes of the newest messages, by id.
type Front = HashMap<String, [u8; 32]>;

impl Flags {
    /// Runs the part and returns the text to print.
    pub(crate) async fn run(self) -> anyhow::Result<String> {
        ensure!(self.messages > 0, "the inbox needs at least one row");
        if self.database.starts_with("postgres") {
            let settings = hapax_postgres::Settings::new(&self.database, clock(), random());
            let store = Postgres::open(settings).await;
            let store = store.context("cannot open the store")?;
            return match self.kind {
                Kind::Fill => fill_server(&self.database, self.messages).await,
                _ => self.accept(store).await,
            };
        }
        let settings = hapax_sqlite::Settings::new(&self.database, clock(), random());
        let store = Sqlite::open(settings).context("cannot open the store")?;
        if self.kind == Kind::Fill {
            store.close().await?;
            return fill_file(&self.database, self.messages);
        }
        let said = self.accept(store.clone()).await?;
        store.close().await?;
        Ok(said)
    }

    async fn accept<K: Keys>(&self, store: K) -> anyhow::Result<String> {
        let (kind, rows) = (self.kind, self.messages);
        let front = self.front.then(|| newest(rows)).transpose()?;
        let front = front.map(Arc::new);
        let warm_up = Duration::from_millis(self.warm_up_ms);
        let window = Duration::from_millis(self.window_ms.max(1));
        measured(self.tasks, warm_up, window, move || {
            accept(store.clone(), front.clone(), kind, rows)
        })
        .await
    }
}

async fn accept<K: Keys>(
    store: K,
    front: Option<Arc<Front>>,
    kind: Kind,
    rows: u64,
) -> anyhow::Result<()> {
    let recent = RECENT.min(rows);
    let (message, expected) = match kind {
        Kind::Fill | Kind::New => {
            let id = format!("msg_{:08x}_{:016x}", bits() % rows, bits());
            (message(id)?, Acceptance::First)
        }
        Kind::Recent => (known(rows - 1 - bits() % recent)?, Acceptance::Duplicate),
        Kind::Any => (known(bits() % rows)?, Acceptance::Duplicate),
    };
    let seen = front.and_then(|front| front.get(&message.message_id).copied());
    let acceptance = if seen == Some(message.payload_hash) {
        Acceptance::Duplicate
    } else {
        let mut tx = store.begin(None, Headers::new()).await?;
        let acceptance = tx.accept(&message).await?;
        tx.commit().await?;
        acceptance
    };
    ensure!(
        acceptance == expected,
        "{}: expected {expected:?}, got {acceptance:?}",
        message.message_id
    );
    Ok(())
}

/// The set of the newest messages.
fn newest(rows: u64) -> anyhow::Result<Front> {
    let messages = (rows.saturating_sub(RECENT)..rows).map(known);
    let entry = |message: Message| (message.message_id, message.payload_hash);
    messages.map(|message| message.map(entry)).collect()
}

/// A message that `fill` has written.
fn known(number: u64) -> anyhow::Result<Message> {
    message(format!("msg_{number:08x}"))
}

fn message(id: String) -> anyhow::Result<Message> {
    Ok(Message::new("bench", "bench", id, ORDER.as_bytes())?)
}

async fn fill_server(url: &str, rows: u64) -> anyhow::Result<String> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let hash = known(0)?.payload_hash;
    for [first, last] in batches(rows)? {
        client
            .execute(FILL_SERVER, &[&&hash[..], &first, &last])
            .await?;
    }
    client
        .batch_execute("VACUUM ANALYZE hapax.inbox_message")
        .await?;
    Ok(format!("{rows} messages"))
}

fn fill_file(path: &str, rows: u64) -> anyhow::Result<String> {
    let conn = Connection::open(path)?;
    let hash = known(0)?.payload_hash;
    let from = clock().now().as_millis() - 3_600_000;
    for [first, last] in batches(rows)? {
        conn.execute(FILL_FILE, params![&hash[..], first, last, from])?;
    }
    Ok(format!("{rows} messages"))
}

/// The first and the last number of each batch.
fn batches(rows: u64) -> anyhow::Result<Vec<[i64; 2]>> {
    let firsts = (0..rows.div_ceil(BATCH)).map(|batch| batch * BATCH);
    let batch = |first: u64| -> anyhow::Result<[i64; 2]> {
        let last = (first + BATCH).min(rows) - 1;
        Ok([i64::try_from(first)?, i64::try_from(last)?])
    };
    firsts.map(batch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_contain_each_number_once() {
        assert_eq!(batches(1).unwrap(), [[0, 0]]);
        assert_eq!(batches(500_000).unwrap(), [[0, 499_999]]);
        let three = [[0, 499_999], [500_000, 999_999], [1_000_000, 1_000_000]];
        assert_eq!(batches(1_000_001).unwrap(), three);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_kind_of_message_is_accepted_as_expected() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("inbox.db");
        let flags = |kind, front| Flags {
            database: database.to_str().unwrap().to_owned(),
            messages: 1_000,
            tasks: 4,
            warm_up_ms: 1,
            window_ms: 50,
            front,
            kind,
        };
        flags(Kind::Fill, false).run().await.unwrap();
        for kind in [Kind::New, Kind::Recent, Kind::Any] {
            for front in [false, true] {
                let said = flags(kind, front).run().await;
                assert!(said.is_ok(), "{kind:?} {front}: {said:?}");
            }
        }
    }
}
