//! PostgreSQL for tests: fresh databases on a shared server, and private servers.
//!
//! The shared server is given by `HAPAX_TEST_POSTGRES`; the default is `127.0.0.1:5432`. Each test
//! gets its own database, which is dropped at its end. If the server cannot be reached, the test
//! fails with instructions. A test that stops or overloads its server uses its own [`Cluster`].

mod cluster;
mod dump;
mod programs;
mod certificates;
mod pooler;

pub use certificates::Certificates;
pub use cluster::Cluster;
pub use dump::{Dump, programs};
pub use pooler::Pooler;

use std::thread;

use tokio_postgres::{Client, Config, NoTls, config::Host};

use self::programs::Programs;
use crate::name::unused;

const SERVER: &str = "postgres://postgres@127.0.0.1:5432/postgres";

/// A database for one test. Dropping the value drops it on the server, with its replication slots.
#[derive(Debug)]
pub struct Database {
    server: String,
    name: String,
}

impl Database {
    /// Creates a database on the shared server from its template.
    ///
    /// `cargo x test` has created the tables of Hapax in the template of its server, because
    /// creating them is most of the cost of a test's database. A test that must not find them uses
    /// [`empty`](Self::empty).
    ///
    /// # Panics
    /// Panics if the server cannot be reached or the role may not create databases.
    pub async fn fresh() -> Self {
        Self::on(&server()).await
    }

    /// Creates an empty database on the shared server.
    ///
    /// # Panics
    /// Panics if the server cannot be reached or the role may not create databases.
    pub async fn empty() -> Self {
        Self::made(&server(), "TEMPLATE template0").await
    }

    /// Creates a database on the server at `url` from its template.
    ///
    /// # Panics
    /// Panics if the server cannot be reached or the role may not create databases.
    pub async fn on(url: &str) -> Self {
        Self::made(url, "").await
    }

    async fn made(url: &str, how: &str) -> Self {
        let name = unused("hapax");
        let client = connect(url).await;
        let made = client
            .batch_execute(&format!("CREATE DATABASE {name} {how}"))
            .await;
        made.unwrap_or_else(|error| panic!("cannot create a database on {url}: {error}"));
        Self {
            server: url.to_owned(),
            name,
        }
    }

    /// The URL.
    pub fn url(&self) -> String {
        with_database(&self.server, &self.name)
    }

    /// The address of the server, as `host:port`, for a proxy.
    ///
    /// # Panics
    /// Panics if the URL has no host that is reached by TCP.
    pub fn address(&self) -> String {
        let config: Config = self
            .server
            .parse()
            .expect("the URL of a connection is valid");
        let Some(Host::Tcp(host)) = config.get_hosts().first() else {
            panic!("{} contains no host, which a proxy needs", self.server);
        };
        let port = config.get_ports().first().copied().unwrap_or(5432);
        format!("{host}:{port}")
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens a plain connection.
    ///
    /// # Panics
    /// Panics if the server cannot be reached.
    pub async fn client(&self) -> Client {
        connect(&self.url()).await
    }

    /// Terminates all connections to the database with this application name. Returns their number.
    ///
    /// # Panics
    /// Panics if the server cannot be reached.
    pub async fn terminate_backends(&self, application_name: &str) -> u64 {
        terminate_backends(&self.client().await, application_name, Some(&self.name)).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        let dropping = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async move {
                let Ok((client, connection)) = tokio_postgres::connect(&server, NoTls).await else {
                    return;
                };
                tokio::spawn(connection);
                // A database with a slot cannot be dropped, nor a slot that is in use.
                let slots = format!(
                    "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots
                     WHERE database = '{name}' AND active;
                     SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
                     WHERE database = '{name}'"
                );
                let _dropped = client.batch_execute(&slots).await;
                let drop_it = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                // A database that cannot be dropped is left on the server.
                let _dropped = client.batch_execute(&drop_it).await;
            });
        });
        let _joined = dropping.join();
    }
}

/// The URL of the shared server.
pub fn server() -> String {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    std::env::var("HAPAX_TEST_POSTGRES").unwrap_or_else(|_| SERVER.to_owned())
}

/// Connects without TLS.
///
/// # Panics
/// Panics if the server cannot be reached.
pub async fn connect(url: &str) -> Client {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, connection) = connected.unwrap_or_else(|error| {
        panic!("no PostgreSQL at {url} ({error}): start one, or set HAPAX_TEST_POSTGRES to its URL")
    });
    tokio::spawn(connection);
    client
}

/// Terminates the connections with this application name, to one database or to all.
async fn terminate_backends(client: &Client, name: &str, database: Option<&str>) -> u64 {
    const TERMINATE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = $1 AND pid <> pg_backend_pid() AND datname = coalesce($2, datname)";
    let ended = client.execute(TERMINATE, &[&name, &database]).await;
    ended.expect("backends can be terminated")
}

/// The installed programs.
fn found() -> Programs {
    Programs::find().unwrap_or_else(|install| panic!("{install}"))
}

/// The URL of another database on the same server.
fn with_database(url: &str, name: &str) -> String {
    let (head, query) = url
        .split_once('?')
        .map_or((url, None), |(head, query)| (head, Some(query)));
    let start = head.find("://").map_or(0, |at| at + 3);
    let path = head[start..].find('/').map_or(head.len(), |at| start + at);
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}/{name}{query}", &head[..path])
}
