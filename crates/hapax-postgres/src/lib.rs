//! The store of Hapax on PostgreSQL: keys, outbox, inbox and deliveries beside your own rows.
//!
//! A transaction holds the key, the handler's rows, the stored answer and the events: one commit.
//! Its statements travel in flights: `BEGIN` and the claim in one, the answer, the events and
//! `COMMIT` in another, so that a handler pays no round trip for being safe. Single-shot requests
//! that are in flight together share one transaction.
//!
//! While a key's transaction runs, an advisory lock stands for the key; the row is written once,
//! whole, with the answer. The database's clock alone judges keys. Nothing needs an extension or
//! a superuser, and nothing is kept on a connection where a transaction-mode pooler stands before
//! the database ([`Settings::pooled`]).

mod settings;
mod postgres;
mod connection;
mod dial;
mod foreign;
mod address;
mod tls;
mod migrations;
mod session;
mod idempotency;
mod phases;
mod transaction;
mod commit;
mod commit_recovery;
mod single_shot;
mod group;
mod statement;
mod emit;
mod seeded;
mod frontier;
mod outbox;
mod inbox;
mod saga;
mod existing;
mod delivery;
mod settle;
mod dead_letter;
pub mod admin;
pub mod adapter;
mod value;
mod error;

pub use dial::dial;
pub use error::{OpenError, SchemaError};
pub use existing::{ExistingTable, ExistingTableError, Imported, Moved};
pub use migrations::{MIGRATIONS, Migration, printed};
pub use postgres::Postgres;
pub use settings::{Schema, Settings, Time};
pub use statement::Statement;
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
