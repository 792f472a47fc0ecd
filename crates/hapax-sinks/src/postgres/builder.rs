//! Builder of a PostgreSQL sink, which checks the settings.
//!
//! Settings that are not valid are refused. An unreachable server, a missing table or a wrong
//! password is not: each delivery reports it.

use std::{fmt, net::IpAddr, time::Duration};

use hapax::{inbox::Message, limits::OFFER};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Mutex;
use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    Postgres,
    link::Links,
    table::{Field, Table},
};
use crate::{limits::CONNECT, resolve::Resolver, tls};

/// Keep-alive interval of an idle connection.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The settings of a [`Postgres`].
#[derive(Clone)]
pub struct PostgresBuilder {
    url: SecretString,
    consumer: String,
    table: String,
    columns: Vec<(Field, String)>,
    source: String,
    trusted: Vec<Vec<u8>>,
    timeout: Duration,
    resolver: Resolver,
}

impl PostgresBuilder {
    pub(super) fn new(url: String) -> Self {
        let columns = Field::ALL.map(|(field, name)| (field, name.to_owned()));
        Self {
            url: url.into(),
            consumer: "hapax".to_owned(),
            table: "inbox_event".to_owned(),
            columns: columns.into(),
            source: "hapax".to_owned(),
            trusted: Vec::new(),
            timeout: OFFER,
            resolver: Resolver::system(),
        }
    }

    /// Sets the name under which the inbox accepts events. It must never change, because it is part
    /// of the inbox rows.
    #[must_use]
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.consumer = name.into();
        self
    }

    /// Sets the table, such as `billing.inbox_event`. The default is `inbox_event`.
    #[must_use]
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// Sets the column of a field.
    #[must_use]
    pub fn column(mut self, field: Field, name: impl Into<String>) -> Self {
        self = self.without(field);
        self.columns.push((field, name.into()));
        self
    }

    /// Omits a field.
    #[must_use]
    pub fn without(mut self, field: Field) -> Self {
        self.columns.retain(|(known, _)| *known != field);
        self
    }

    /// Sets the source in the inbox rows. The default is `hapax`. It must never change, because the
    /// inbox identifies an event by source, id and consumer.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Trusts the certificates in this PEM text in addition to the public ones.
    #[must_use]
    pub fn trust(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.trusted.push(certificates.into());
        self
    }

    /// Sets the timeout of a whole batch, from connecting to the last response.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Uses this resolver for names instead of the resolver of the process.
    #[must_use]
    pub fn resolver(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// Builds the sink. It connects when it has something to deliver.
    ///
    /// # Errors
    /// Fails if a setting is not valid. The error names it.
    pub fn build(self) -> Result<Postgres, PostgresError> {
        let config = config(self.url.expose_secret(), self.timeout)?;
        if Message::new(&self.consumer, &self.source, "probe", b"").is_err() {
            return Err(PostgresError::Consumer);
        }
        let parts: Vec<_> = self.table.split('.').collect();
        let columns = || self.columns.iter().map(|(_, name)| name.as_str());
        let names = parts.iter().copied().chain(columns());
        if parts.len() > 2 || !names.clone().all(is_name) {
            return Err(PostgresError::Name);
        }
        if columns().count() == 0 {
            return Err(PostgresError::Columns);
        }
        let tls = tls::client(&self.trusted).map_err(|_| PostgresError::Certificate)?;
        let (name, columns) = (self.table, self.columns);
        Ok(Postgres {
            links: Links {
                config,
                tls: MakeRustlsConnect::new(tls),
                consumer: self.consumer,
                source: self.source,
                table: Table { name, columns },
                resolver: self.resolver,
                current: Mutex::new(None),
            },
            timeout: self.timeout,
        })
    }
}

impl fmt::Debug for PostgresBuilder {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBuilder")
            .field("consumer", &self.consumer)
            .field("table", &self.table)
            .field("columns", &self.columns)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Why a PostgreSQL sink cannot be built. The error never contains the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// The URL is not valid.
    #[error("address of the database is not a url such as postgres://user@host/database")]
    Address,
    /// The consumer or the source is empty or too long.
    #[error("consumer and source are names of 1 to 255 bytes")]
    Consumer,
    /// The table or a column has no name or a name with a brace, or the table has more parts than
    /// schema and name.
    #[error(
        "table is not a name or schema.name, or a column has no name, or a name contains `{{` or `}}`"
    )]
    Name,
    /// All fields are omitted.
    #[error("all fields of the event are omitted from the table")]
    Columns,
    /// A trusted certificate is not valid PEM.
    #[error("certificate to trust is not PEM")]
    Certificate,
}

fn config(url: &str, timeout: Duration) -> Result<Config, PostgresError> {
    // Certificates are always verified completely, so the stricter modes mean the same as
    // `require`.
    let url = ["verify-full", "verify-ca"]
        .iter()
        .fold(url.to_owned(), |url, mode| {
            url.replace(&format!("sslmode={mode}"), "sslmode=require")
        });
    let mut config: Config = url.parse().map_err(|_| PostgresError::Address)?;
    if config.get_hosts().is_empty() {
        return Err(PostgresError::Address);
    }
    // A certificate that is not verified proves nothing: TLS is always used with verification, or,
    // on request, not at all.
    if config.get_ssl_mode() == SslMode::Prefer {
        let mode = if is_local(&config) {
            SslMode::Disable
        } else {
            SslMode::Require
        };
        config.ssl_mode(mode);
    }
    config.connect_timeout(CONNECT);
    config.keepalives_idle(KEEP_ALIVE);
    config.tcp_user_timeout(timeout);
    if config.get_application_name().is_none() {
        config.application_name("hapax");
    }
    Ok(config)
}

/// Whether this can be the name of a table or a column. Braces are placeholders of the statement.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['\0', '{', '}'])
}

/// Whether all hosts are on this machine.
fn is_local(config: &Config) -> bool {
    config.get_hosts().iter().all(|host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse()
                    .is_ok_and(|address: IpAddr| address.is_loopback())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_never_work_is_refused_by_name() {
        for url in ["", "http://h", "postgres://h:x/d", "postgres:///d"] {
            check(Postgres::to(url), &PostgresError::Address);
        }
        let builder = || Postgres::to("postgres://h/d");
        check(builder().consumer(""), &PostgresError::Consumer);
        check(builder().source("x".repeat(256)), &PostgresError::Consumer);
        for table in ["", "a.", "a.b.c", "a\0", "{columns}", "a}.b"] {
            check(builder().table(table), &PostgresError::Name);
        }
        for column in ["", "{values}", "a}"] {
            check(builder().column(Field::Type, column), &PostgresError::Name);
        }
        let none = Field::ALL
            .iter()
            .fold(builder(), |it, (field, _)| it.without(*field));
        check(none, &PostgresError::Columns);
        check(builder().trust("none"), &PostgresError::Certificate);
        assert!(builder().build().is_ok());
    }

    #[test]
    fn what_leaves_the_machine_is_encrypted_unless_it_is_said_otherwise() {
        for (url, mode) in [
            ("postgres://localhost/d", SslMode::Disable),
            ("postgres://127.0.0.1/d", SslMode::Disable),
            ("postgres://localhost/d?sslmode=require", SslMode::Require),
            ("postgres://db.example.com/d", SslMode::Require),
            (
                "postgres://db.example.com/d?sslmode=verify-full",
                SslMode::Require,
            ),
            (
                "postgres://db.example.com/d?sslmode=disable",
                SslMode::Disable,
            ),
        ] {
            assert_eq!(config(url, OFFER).unwrap().get_ssl_mode(), mode, "{url}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let builder = Postgres::to("postgres://shop:secret@h/d");
        let text = format!("{builder:?} {:?}", builder.clone().build().unwrap());
        assert!(!text.contains("secret"), "{text}");
    }

    #[track_caller]
    fn check(builder: PostgresBuilder, expected: &PostgresError) {
        assert_eq!(&builder.build().unwrap_err(), expected);
    }
}
