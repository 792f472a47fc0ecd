//! The embedded store of Hapax: keys, outbox, inbox and deliveries in one SQLite file.
//!
//! One thread, the writer, owns the only connection that writes. Requests that arrive while it
//! works share its next commit: each runs in its own savepoint, one commit makes all of them
//! durable (WAL, `synchronous = FULL`), and no request gets a response before that commit. Readers
//! have separate connections and never wait for the writer. Another thread merges the write-ahead
//! log into the database.
//!
//! The store guarantees that an acknowledged write survives a crash at any time, and that the ids
//! in the outbox increase in commit order. It refuses a file that another store has open, and a
//! schema that is newer, foreign or changed; the error names the reason.
//!
//! Operators use a [`SqliteAdmin`], in the process of the store ([`Sqlite::admin`]) or in another one
//! beside it.
//!
//! ```
//! use hapax::{Clock, Random, delivery::{Frontier, Shards}, event::{Headers, NewEvent}};
//! use hapax::store::{Keys, Source, Transaction};
//! use hapax_sqlite::{Settings, Sqlite};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("shop.db");
//! # let clock = Clock::new(|| hapax::Timestamp::from_millis(1_700_000_000_000));
//! # let random = Random::new(|| 7);
//! let store = Sqlite::open(Settings::new(path, clock, random))?;
//! let orders = [(1, "orders", "CREATE TABLE orders (id INTEGER PRIMARY KEY, amount INTEGER)")];
//! store.migrate("shop", &orders).await?;
//!
//! // The row and the event are one commit: both exist, or neither.
//! let mut tx = store.begin(None, Headers::new()).await?;
//! tx.with(|rows| rows.execute("INSERT INTO orders (amount) VALUES (?1)", [500])).await?;
//! tx.emit(NewEvent::json("order.created", &500))?;
//! tx.commit().await?;
//!
//! let batch = Source::read(&store, &Frontier::default(), Shards::ALL, 10).await?;
//! assert_eq!(batch.events[0].event.kind, "order.created");
//! store.close().await?;
//! # Ok(())
//! # }
//! ```

mod settings;
mod clock;
mod sqlite;
mod lock;
mod file_identity;
mod connection;
mod migrations;
mod schema_version;
mod control;
mod merge;
mod writer;
mod pool;
mod transaction;
mod running;
mod idempotency;
mod keys;
mod phase;
mod phases;
mod single_shot;
mod outbox;
mod inbox;
mod absence;
mod operational;
mod delivery;
mod poll;
mod endpoint;
mod saga;
mod admin;
mod value;
mod error;

pub use admin::SqliteAdmin;
pub use error::{OpenError, SchemaError};
pub use idempotency::Statement;
pub use lock::{has_relay, is_held};
pub use migrations::{MIGRATIONS, Migration};
pub use rusqlite;
pub use settings::Settings;
pub use sqlite::Sqlite;
pub use transaction::Tx;

/// The text of a query file, without the comment at its top.
macro_rules! query {
    ($name:literal) => {
        const {
            $crate::statement_of(include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/queries/",
                $name,
                ".sql"
            )))
        }
    };
}
pub(crate) use query;

/// Skips the comment lines at the top: the statement cache hashes the text on every call.
const fn statement_of(text: &'static str) -> &'static str {
    let bytes = text.as_bytes();
    let mut start = 0;
    while start + 1 < bytes.len() && bytes[start] == b'-' && bytes[start + 1] == b'-' {
        while start < bytes.len() && bytes[start] != b'\n' {
            start += 1;
        }
        start += 1;
    }
    text.split_at(start).1
}
