//! A store of your own, in memory: keys, transactions, outbox, inbox and deliveries.
//!
//! It is the smallest store that passes the core of the conformance suite. A [`Database`] has the
//! tables and a lock; a [`Memory`] is a process that uses them. Nothing is written before a commit:
//! an open transaction is a list of changes, and dropping the list rolls it back. The guide "Write a
//! store" explains these files.

mod transaction;
mod running;
mod keys;
mod outbox;
mod partitions;
mod settlements;
mod dead_letters;
mod tables;

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard},
};

use hapax::{Clock, Random, notify::Notifier};

use running::Running;
pub use tables::Tables;
pub use transaction::{InsertRow, Tx};

/// The database. It outlives the [`Memory`] that uses it, as a server outlives its clients.
#[derive(Clone, Debug)]
pub struct Database {
    tables: Arc<Mutex<Tables>>,
    /// The lock of the only open transaction. It is released when the transaction is dropped.
    writer: Arc<tokio::sync::Mutex<()>>,
    running: Running,
}

impl Database {
    /// Creates an empty database.
    ///
    /// # Errors
    /// Fails if the system provides no random bytes.
    pub fn new() -> Result<Self, ring::error::Unspecified> {
        Ok(Self {
            tables: Arc::new(Mutex::new(Tables::new()?)),
            writer: Arc::default(),
            running: Running::default(),
        })
    }

    /// A copy of all committed rows.
    pub fn backup(&self) -> Tables {
        self.tables().clone()
    }

    /// Replaces all rows by those of a backup.
    pub fn restore(&self, backup: Tables) {
        let mut tables = self.tables();
        let replaced = mem::replace(&mut *tables, backup);
        tables.history = replaced.history + 1;
    }

    /// Locks the tables for one read or one write, never across an `await`.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().expect("no write panics half-way")
    }
}

/// A store in memory.
#[derive(Clone, Debug)]
pub struct Memory {
    database: Database,
    clock: Clock,
    random: Random,
    notifier: Notifier,
}

impl Memory {
    /// Opens a database.
    pub fn open(database: Database, clock: Clock, random: Random) -> Self {
        Self {
            database,
            clock,
            random,
            notifier: Notifier::new(),
        }
    }

    /// The notifier that wakes the relay after a commit.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// The committed rows of the service.
    pub fn rows(&self) -> Vec<String> {
        self.tables().rows.clone()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.database.tables()
    }
}
