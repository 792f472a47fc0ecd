//! Connection types: a direct connection, a pooler, a role with only the documented grants, and
//! TLS.
//!
//! `HAPAX_TEST_WAY` selects the type for the whole conformance suite (default: `direct`). To run
//! all types with every version of PostgreSQL, use `cargo x matrix`. The tests in this folder run
//! every time.

mod pooled;
mod role;
mod tls;

use hapax::{Clock, Random};
use hapax_postgres::{Migration, Postgres, Schema, Settings, Time};
use hapax_testkit::postgres::{Database, Pooler, connect, server};
use tokio_postgres::Client;

/// How a store reaches its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionType {
    /// As a superuser, without TLS.
    Direct,
    /// Through a pooler in transaction mode, which assigns a server connection per transaction.
    Pooled,
    /// As a role that owns nothing and has only the grants of the guide.
    Role,
    /// With TLS, to a server whose authority is in the file `HAPAX_TEST_ROOT`.
    Tls,
}

impl ConnectionType {
    /// The connection type that the environment selects.
    pub(crate) fn asked() -> Self {
        match variable("HAPAX_TEST_WAY").as_deref() {
            None | Some("direct") => Self::Direct,
            Some("pooled") => Self::Pooled,
            Some("role") => Self::Role,
            Some("tls") => Self::Tls,
            Some(other) => panic!("HAPAX_TEST_WAY is direct, pooled, role or tls, not {other:?}"),
        }
    }
}

/// A fresh database and how to reach it; dropping the value drops the database.
pub(crate) struct Reached {
    way: ConnectionType,
    pooler: Option<Pooler>,
    database: Database,
}

impl Reached {
    /// Creates an empty database that is reached this way.
    pub(crate) async fn fresh(way: ConnectionType) -> Self {
        let database = Database::empty().await;
        let pooler = match way {
            ConnectionType::Pooled => Some(Pooler::before(&server(), 3).await),
            _ => None,
        };
        if way == ConnectionType::Role {
            role::prepare(&database).await;
        }
        Self {
            way,
            pooler,
            database,
        }
    }

    /// The settings of a store that connects this way; `clock` also decides when keys expire.
    pub(crate) fn settings(&self, clock: Clock, random: Random) -> Settings {
        let url = match (self.way, &self.pooler) {
            (ConnectionType::Pooled, Some(pooler)) => pooler.url(self.database.name()),
            (ConnectionType::Role, _) => role::url(&self.database, role::SERVICE),
            (ConnectionType::Tls, _) => {
                let root = variable("HAPAX_TEST_ROOT");
                let root = root.expect(
                    "HAPAX_TEST_ROOT is not set: it names the file with the server's authority",
                );
                format!(
                    "{}?sslmode=verify-full&sslrootcert={root}",
                    self.database.url()
                )
            }
            _ => self.database.url(),
        };
        let mut settings = Settings::new(url, clock.clone(), random);
        settings.time = Time::Given(clock);
        settings.pooled = self.way == ConnectionType::Pooled;
        if self.way == ConnectionType::Role {
            settings.schema = Schema::Check;
        }
        settings
    }

    /// A connection that bypasses the store, as the owner of the database.
    pub(crate) async fn client(&self) -> Client {
        self.database.client().await
    }

    /// Opens a store with additional tables of the service.
    pub(crate) async fn open(&self, settings: Settings, tables: &[Migration<'_>]) -> Postgres {
        if self.way == ConnectionType::Role {
            role::install(&self.database, &settings, tables).await;
        }
        let store = Postgres::open(settings)
            .await
            .expect("the store does not open");
        let made = store.migrate("law", tables).await;
        made.expect("the migrations failed");
        store
    }
}

/// Runs SQL as the user of the URL.
async fn run(url: &str, sql: &str) {
    let ran = connect(url).await.batch_execute(sql).await;
    ran.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    std::env::var(name).ok()
}
