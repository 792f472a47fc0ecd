//! Store of `hapax relay`: what the relay needs besides the traits of the library.

use std::{collections::BTreeMap, fmt, future::Future, sync::Arc};

use hapax::{
    Clock,
    admin::Admin,
    endpoint::EndpointStore,
    notify::Notifier,
    operational::OperationalStore,
    poll::PollStore,
    store::{Deliveries, Outbox, Sagas},
};
use hapax_postgres::{Feeder, Imported, Postgres, TableSource};
use hapax_sqlite::Sqlite;
use secrecy::ExposeSecret as _;

use super::{DatabaseError, sqlite};
use crate::{config::Feed, environment};

/// The cheapest write of a file. It changes no value.
const WRITE: &str = "
    UPDATE hapax_migration SET applied_at = applied_at WHERE namespace = 'hapax' AND version = 1";

/// The present state of a database, for `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseState {
    /// The database accepts writes.
    Writable,
    /// The database refuses writes.
    ReadOnly,
    /// The database does not respond.
    Silent,
}

/// A store whose events `hapax relay` can deliver.
pub(crate) trait RelayStore:
    Outbox + Deliveries + Sagas + PollStore + EndpointStore + OperationalStore + fmt::Debug
{
    /// Whether other processes may have the store open.
    const IS_SHARED: bool;

    /// The store as operators see it.
    fn admin(&self) -> Result<Arc<dyn Admin>, DatabaseError>;

    /// The clock that decides about leases and retries.
    fn clock(&self) -> Clock;

    /// The notifier that wakes the relay after a commit.
    fn notifier(&self) -> Notifier;

    /// Asks whether the database accepts writes. On SQLite this is a commit.
    fn database_state(&self) -> impl Future<Output = DatabaseState> + Send;

    /// Opens the existing outbox tables of services. The error names the one that cannot be opened.
    fn sources(
        &self,
        sources: &BTreeMap<String, TableSource>,
    ) -> impl Future<Output = Result<Vec<Imported>, DatabaseError>> + Send;

    /// The feeders of the configuration. The error names the feed that cannot be run.
    fn feeders(&self, feeds: &BTreeMap<String, Feed>) -> Result<Vec<Feeder>, DatabaseError>;

    /// Closes the store; it must not be used afterwards.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

impl RelayStore for Postgres {
    const IS_SHARED: bool = true;

    fn admin(&self) -> Result<Arc<dyn Admin>, DatabaseError> {
        Ok(Arc::new(self.clone()))
    }

    fn clock(&self) -> Clock {
        self.database_clock()
    }

    fn notifier(&self) -> Notifier {
        Postgres::notifier(self)
    }

    async fn database_state(&self) -> DatabaseState {
        match self.accepts_writes().await {
            Ok(true) => DatabaseState::Writable,
            Ok(false) => DatabaseState::ReadOnly,
            Err(_) => DatabaseState::Silent,
        }
    }

    async fn sources(
        &self,
        sources: &BTreeMap<String, TableSource>,
    ) -> Result<Vec<Imported>, DatabaseError> {
        let mut opened = Vec::new();
        for (name, source) in sources {
            let mut table = source.clone();
            table.name.clone_from(name);
            let imported = Imported::open(self, table).await;
            opened.push(imported.map_err(|error| {
                let why = environment::error_chain(&error);
                DatabaseError(format!("sources.{name}: {why}"))
            })?);
        }
        Ok(opened)
    }

    fn feeders(&self, feeds: &BTreeMap<String, Feed>) -> Result<Vec<Feeder>, DatabaseError> {
        let feeder = |(name, feed): (&String, &Feed)| -> Result<Feeder, DatabaseError> {
            let url = feed.url();
            let url = url.map_err(|bad| DatabaseError(format!("feeds.{name}.database {bad}")))?;
            let mut source = self.settings().clone();
            if let Some(url) = url {
                url.expose_secret().clone_into(&mut source.url);
            }
            Ok(Feeder::new(self, source, feed.described(name)))
        };
        feeds.iter().map(feeder).collect()
    }

    async fn close(&self) {
        Postgres::close(self);
    }
}

impl RelayStore for Sqlite {
    const IS_SHARED: bool = false;

    fn admin(&self) -> Result<Arc<dyn Admin>, DatabaseError> {
        let admin = Sqlite::admin(self).map_err(|error| sqlite::refused(&error))?;
        Ok(Arc::new(admin))
    }

    fn clock(&self) -> Clock {
        environment::clock()
    }

    fn notifier(&self) -> Notifier {
        Sqlite::notifier(self)
    }

    async fn database_state(&self) -> DatabaseState {
        match self.write(|connection| connection.execute(WRITE, [])).await {
            Ok(_) => DatabaseState::Writable,
            Err(error) => {
                tracing::warn!(error = error.error_chain(), "cannot write to the store");
                DatabaseState::ReadOnly
            }
        }
    }

    async fn sources(
        &self,
        sources: &BTreeMap<String, TableSource>,
    ) -> Result<Vec<Imported>, DatabaseError> {
        match sources.keys().next() {
            None => Ok(Vec::new()),
            Some(name) => Err(DatabaseError(format!(
                "sources.{name}: an existing outbox table must be in a PostgreSQL database"
            ))),
        }
    }

    fn feeders(&self, feeds: &BTreeMap<String, Feed>) -> Result<Vec<Feeder>, DatabaseError> {
        match feeds.keys().next() {
            None => Ok(Vec::new()),
            Some(name) => Err(DatabaseError(format!(
                "feeds.{name}: a feed needs a relay whose database is PostgreSQL"
            ))),
        }
    }

    async fn close(&self) {
        if let Err(error) = Sqlite::close(self).await {
            tracing::error!(error = error.error_chain(), "cannot close the store");
        }
    }
}
