//! The database: how it is opened, for operators and for a relay.
//!
//! The commands of operators and the console know [`Admin`] alone. On PostgreSQL it is the store; an
//! SQLite file is opened next to the service that has it open as a store. A relay needs a
//! [`RelayStore`]: an SQLite file then belongs to the relay alone.

pub(crate) mod postgres;
pub(crate) mod sqlite;
mod relay_store;

use std::sync::Arc;

use hapax::{
    admin::Admin, failpoint::Failpoints, keyring::Keyring, operational::OperationalEvents,
};

use crate::config::{Database, DatabaseLocation};

pub(crate) use relay_store::{DatabaseState, RelayStore};

/// Access to the database: the settings and secrets with which it is opened.
#[derive(Debug)]
pub(crate) struct Access<'a> {
    /// The section of the configuration.
    pub(crate) config: &'a Database,
    /// The keys that decrypt what services have encrypted.
    pub(crate) keyring: Keyring,
    /// Failpoints that are reached at each commit.
    pub(crate) failpoints: Failpoints,
    /// The operational events that a relay emits.
    pub(crate) operational_events: OperationalEvents,
}

/// Why the database cannot be used, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct DatabaseError(pub(crate) String);

/// Opens the database for operators. A schema of an unknown version is refused.
pub(crate) async fn open(
    access: &Access<'_>,
    place: &DatabaseLocation,
) -> Result<Arc<dyn Admin>, DatabaseError> {
    Ok(match place {
        DatabaseLocation::Server(url) => Arc::new(postgres::open(access, url).await?),
        DatabaseLocation::File(path) => Arc::new(sqlite::open_admin(access, path)?),
    })
}
