//! The store of Hapax on PostgreSQL: keys, outbox, inbox and deliveries beside your own tables.
//!
//! The key, the handler's rows, the stored response and the events are written in one transaction.
//! Its statements are pipelined: `BEGIN` and the claim are one round trip; the response, the events
//! and
//! `COMMIT` are another. Concurrent single-shot requests share one transaction, and so do the keys of
//! phased requests that are entered or finished at the same time.
//!
//! While the transaction of a key runs, the key is represented by an advisory lock, and its payload
//! by another one. Its row is written once, together with the response. Only the database's clock
//! decides about keys. The store needs no extension and no superuser, and keeps no state on a
//! connection if there is a pooler in transaction mode ([`Settings::pooled`]).
//!
//! ```no_run
//! use hapax::{Clock, Random, event::{Headers, NewEvent}, store::{Keys, Transaction}};
//! use hapax_postgres::{Postgres, Settings};
//!
//! # async fn example(clock: Clock, random: Random) -> Result<(), Box<dyn std::error::Error>> {
//! let store = Postgres::open(Settings::new("postgres://localhost/shop", clock, random)).await?;
//!
//! // The row and the event are one commit: both exist, or neither.
//! let mut tx = store.begin(None, Headers::new()).await?;
//! tx.execute("INSERT INTO orders (amount) VALUES ($1)", &[&500_i64]).await?;
//! tx.emit(NewEvent::json("order.created", &500))?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```

mod settings;
mod postgres;
mod open;
mod connection;
mod dial;
mod listener;
mod address;
mod tls;
mod migrations;
mod session;
mod idempotency;
mod payload_lock;
mod claim;
mod keys;
mod phase;
mod phase_member;
mod phases;
mod transaction;
mod commit;
mod commit_recovery;
mod member;
mod single_shot;
mod groups;
mod statement;
mod ending_keyword;
mod emit;
mod frontier;
mod looks;
mod outbox;
mod inbox;
mod saga;
mod table_source;
mod feed;
mod work;
mod operational;
mod delivery;
mod poll;
mod endpoint;
mod admin;
pub mod adapter;
mod value;
mod error;

pub use admin::FeedStatus;
pub use dial::dial;
pub use error::{OpenError, SchemaError};
pub use feed::{Change, Feed, FeedTable, Feeder};
pub use migrations::{CONTRACT_VERSION, MIGRATIONS, Migration, printed};
pub use postgres::Postgres;
pub use settings::{Schema, Settings, Time};
pub use statement::Statement;
pub use table_source::{Imported, Moved, TableSource, TableSourceError};
pub use tokio_postgres;
pub use transaction::Tx;
pub use value::Value;

/// A query's text, without the comment that says why it is there.
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

/// Skips the comment lines on top: the text is what the statement cache hashes on every call.
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
