//! The ways to a database: directly, behind a pooler, as a role with no more than its grants, and
//! in private.
//!
//! `HAPAX_TEST_WAY` says which one the whole law is held over (`direct` when it says nothing);
//! `cargo x matrix` goes through all of them, with every version of PostgreSQL. What is worth its
//! time in every run stands in the files here.

mod certificates;
mod pooler;
mod pooled;
mod role;
mod tls;

use hapax::{Clock, Random};
use hapax_postgres::{Migration, Postgres, Schema, Settings, Time};
use hapax_testkit::postgres::{Database, connect, server};
use tokio_postgres::Client;

use pooler::Pooler;

/// How a store reaches its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// As a superuser, without TLS.
    Direct,
    /// Behind a pooler that gives a server connection to whoever has a transaction.
    Pooled,
    /// As a role that owns nothing and may do what the guide grants.
    Role,
    /// With TLS, to a server whose authority `HAPAX_TEST_ROOT` names.
    Tls,
}

impl Way {
    /// The way that the environment asks for.
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

/// A database of its own, and the way to it; dropping it drops the database.
pub(crate) struct Reached {
    way: Way,
    pooler: Option<Pooler>,
    database: Database,
}

impl Reached {
    /// Makes an empty database that is reached this way.
    pub(crate) async fn fresh(way: Way) -> Self {
        let database = Database::empty().await;
        let pooler = match way {
            Way::Pooled => Some(Pooler::before(&server(), 3).await),
            _ => None,
        };
        if way == Way::Role {
            role::prepare(&database).await;
        }
        Self {
            way,
            pooler,
            database,
        }
    }

    /// The settings of a store that goes this way; its clock judges keys too.
    pub(crate) fn settings(&self, clock: Clock, random: Random) -> Settings {
        let url = match (self.way, &self.pooler) {
            (Way::Pooled, Some(pooler)) => pooler.url(self.database.name()),
            (Way::Role, _) => role::url(&self.database, role::SERVICE),
            (Way::Tls, _) => {
                let root = variable("HAPAX_TEST_ROOT");
                let root = root.expect("HAPAX_TEST_ROOT names the authority of the server");
                format!(
                    "{}?sslmode=verify-full&sslrootcert={root}",
                    self.database.url()
                )
            }
            _ => self.database.url(),
        };
        let mut settings = Settings::new(url, clock.clone(), random);
        settings.time = Time::Given(clock);
        settings.pooled = self.way == Way::Pooled;
        if self.way == Way::Role {
            settings.schema = Schema::Check;
        }
        settings
    }

    /// A connection past the store, as whoever owns the database.
    pub(crate) async fn client(&self) -> Client {
        self.database.client().await
    }

    /// Opens a store with tables of the service's own.
    pub(crate) async fn open(&self, settings: Settings, tables: &[Migration<'_>]) -> Postgres {
        if self.way == Way::Role {
            role::install(&self.database, &settings, tables).await;
        }
        let store = Postgres::open(settings).await.expect("the store opens");
        let made = store.migrate("law", tables).await;
        made.expect("the tables are made");
        store
    }
}

/// Runs SQL as whoever the URL names.
async fn run(url: &str, sql: &str) {
    let ran = connect(url).await.batch_execute(sql).await;
    ran.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    std::env::var(name).ok()
}
