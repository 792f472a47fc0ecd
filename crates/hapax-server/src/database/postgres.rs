//! A PostgreSQL database.

use hapax_postgres::{OpenError, Postgres, SchemaError, Settings};
use secrecy::{ExposeSecret as _, SecretString};

use super::{Access, DatabaseError};
use crate::{config::Schema, environment};

/// The settings of the store.
pub(crate) fn settings(access: &Access<'_>, url: &SecretString) -> Settings {
    let config = access.config;
    let (clock, random) = (environment::clock(), environment::random());
    let mut settings = Settings::new(url.expose_secret(), clock, random);
    settings
        .root_certificates
        .clone_from(&config.root_certificates);
    settings.failpoints = access.failpoints.clone();
    settings.keyring = access.keyring.clone();
    settings.operational_events = access.operational_events.clone();
    settings.pooled = config.pooled;
    settings.connections = config.connections.into();
    settings.connect_max = config.connect_timeout.0;
    settings.statement_max = config.statement_timeout.0;
    settings.schema = match config.schema {
        Schema::Check => hapax_postgres::Schema::Check,
        Schema::Apply => hapax_postgres::Schema::Apply,
    };
    settings
}

/// Opens the store.
pub(crate) async fn open(
    access: &Access<'_>,
    url: &SecretString,
) -> Result<Postgres, DatabaseError> {
    let opened = Postgres::open(settings(access, url)).await;
    opened.map_err(|error| refused(&error))
}

/// Why a database was not opened, and which command helps.
pub(crate) fn refused(error: &OpenError) -> DatabaseError {
    DatabaseError(match error {
        OpenError::Schema {
            source: SchemaError::Older { found: 0, .. },
        } => "the database has no tables of Hapax: run `hapax migrate`".to_owned(),
        OpenError::Schema {
            source: SchemaError::Older { .. },
        } => format!("{}: run `hapax migrate`", environment::error_chain(error)),
        _ => environment::error_chain(error),
    })
}
