//! Fresh databases on a real PostgreSQL server, and private servers to break.
//!
//! The server is the one that `HAPAX_TEST_POSTGRES` names, or the one on `127.0.0.1:5432`. Each
//! test gets a database of its own, which goes with it. A server that cannot be reached fails the
//! test, with a line that says what to do. A test that stops or starves its server has a
//! [`Cluster`] of its own.

mod cluster;
mod dump;
mod programs;

pub use cluster::Cluster;
pub use dump::{Dump, programs};

use std::thread;

use tokio_postgres::{Client, Config, NoTls, config::Host};

use crate::name::unused;

const SERVER: &str = "postgres://postgres@127.0.0.1:5432/postgres";

/// A database that nobody else uses; dropping it drops it on the server.
#[derive(Debug)]
pub struct Database {
    server: String,
    name: String,
}

impl Database {
    /// Makes a database on the tests' server, as that makes them.
    ///
    /// `cargo x test` has put the tables of Hapax where its server takes databases from: to make
    /// them is most of what a test's database costs. Who is not to find them asks for one that is
    /// [`empty`](Self::empty).
    ///
    /// # Panics
    /// When the server cannot be reached, or the role may not make databases.
    pub async fn fresh() -> Self {
        Self::on(&server()).await
    }

    /// Makes an empty database on the tests' server.
    ///
    /// # Panics
    /// When the server cannot be reached, or the role may not make databases.
    pub async fn empty() -> Self {
        Self::made(&server(), "TEMPLATE template0").await
    }

    /// Makes a database on the server at `url`, as that makes them.
    ///
    /// # Panics
    /// When the server cannot be reached, or the role may not make databases.
    pub async fn on(url: &str) -> Self {
        Self::made(url, "").await
    }

    async fn made(url: &str, how: &str) -> Self {
        let name = unused("hapax");
        let client = connect(url).await;
        let made = client
            .batch_execute(&format!("CREATE DATABASE {name} {how}"))
            .await;
        made.unwrap_or_else(|error| panic!("cannot make a database on {url}: {error}"));
        Self {
            server: url.to_owned(),
            name,
        }
    }

    /// Its address.
    pub fn url(&self) -> String {
        with_database(&self.server, &self.name)
    }

    /// Where its server listens, as `host:port`: what a proxy is to lead to.
    ///
    /// # Panics
    /// When its address names no host that is reached by TCP.
    pub fn address(&self) -> String {
        let config: Config = self
            .server
            .parse()
            .expect("an address that was connected to");
        let Some(Host::Tcp(host)) = config.get_hosts().first() else {
            panic!("{} names no host: a proxy needs one", self.server);
        };
        let port = config.get_ports().first().copied().unwrap_or(5432);
        format!("{host}:{port}")
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A plain connection to it.
    ///
    /// # Panics
    /// When it cannot be reached.
    pub async fn client(&self) -> Client {
        connect(&self.url()).await
    }

    /// Ends every connection to it that goes by this name; says how many there were.
    ///
    /// # Panics
    /// When it cannot be reached.
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
                let drop_it = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                // What cannot be dropped is left to whoever looks after the server.
                let _dropped = client.batch_execute(&drop_it).await;
            });
        });
        let _joined = dropping.join();
    }
}

/// The address of the tests' server.
pub fn server() -> String {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    std::env::var("HAPAX_TEST_POSTGRES").unwrap_or_else(|_| SERVER.to_owned())
}

/// Connects without TLS.
///
/// # Panics
/// When the server cannot be reached.
pub async fn connect(url: &str) -> Client {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, connection) = connected.unwrap_or_else(|error| {
        panic!("no PostgreSQL at {url} ({error}): start one, or name one in HAPAX_TEST_POSTGRES")
    });
    tokio::spawn(connection);
    client
}

/// Ends the connections that go by this name, to one database or to all.
async fn terminate_backends(client: &Client, name: &str, database: Option<&str>) -> u64 {
    const TERMINATE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = $1 AND pid <> pg_backend_pid() AND datname = coalesce($2, datname)";
    let ended = client.execute(TERMINATE, &[&name, &database]).await;
    ended.expect("backends can be ended")
}

/// The same server, another database.
fn with_database(url: &str, name: &str) -> String {
    let (head, query) = url
        .split_once('?')
        .map_or((url, None), |(head, query)| (head, Some(query)));
    let start = head.find("://").map_or(0, |at| at + 3);
    let path = head[start..].find('/').map_or(head.len(), |at| start + at);
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}/{name}{query}", &head[..path])
}
