//! The PostgreSQL server for the measurements: one that the harness starts, or that of
//! `--postgres`.
//!
//! The harness starts the installed programs with PostgreSQL's default settings, durable, in the
//! folder of `--dir`. The report lists the important settings of the server in both cases.

use std::{fmt, path::Path};

use anyhow::Context as _;
use hapax_testkit::postgres::{Cluster, Database};
use tokio_postgres::NoTls;

/// Settings that the testkit changes for its small server, set back to PostgreSQL's defaults.
const STOCK: [(&str, &str); 4] = [
    ("shared_buffers", "128MB"),
    ("max_wal_size", "1GB"),
    ("deadlock_timeout", "1s"),
    ("dynamic_shared_memory_type", "posix"),
];
/// Reads the settings that affect the figures.
const TOLD: &str = "\
SELECT name, current_setting(name) FROM unnest(ARRAY[
    'wal_level', 'fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method',
    'shared_buffers', 'max_wal_size', 'checkpoint_timeout', 'autovacuum', 'max_connections', 'jit'
]) WITH ORDINALITY AS told (name, place) ORDER BY place";

/// A server with its version and settings.
#[derive(Debug)]
pub(in crate::run) struct Server {
    url: String,
    version: String,
    settings: Vec<String>,
    cluster: Option<Cluster>,
}

impl Server {
    /// Starts a private server below `dir`, or uses the one at `url`.
    pub(in crate::run) async fn start(dir: &Path, url: Option<&str>) -> anyhow::Result<Self> {
        Self::with(dir, url, &STOCK).await
    }

    /// The same with logical decoding, which the server at `url` may not have.
    pub(in crate::run) async fn logical(dir: &Path, url: Option<&str>) -> anyhow::Result<Self> {
        let mut given = None;
        if let Some(url) = url {
            let client = connect(&without_tls(url)).await?;
            let level = client.query_one("SHOW wal_level", &[]).await?;
            given = Some(url).filter(|_| level.get::<_, &str>(0) == "logical");
        }
        let settings = [&STOCK[..], &[("wal_level", "logical")]].concat();
        Self::with(dir, given, &settings).await
    }

    async fn with(
        dir: &Path,
        url: Option<&str>,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let cluster = match url {
            Some(_) => None,
            None => Some(Cluster::start_in(dir, settings).await),
        };
        let url = url.map(str::to_owned);
        let url = url.or_else(|| cluster.as_ref().map(Cluster::url));
        let mut server = Self {
            url: without_tls(&url.unwrap_or_default()),
            version: String::new(),
            settings: Vec::new(),
            cluster,
        };
        let client = connect(&server.url).await?;
        let version = client.query_one("SHOW server_version", &[]).await?;
        server.version = version.get(0);
        for row in client.query(TOLD, &[]).await? {
            let (name, value): (&str, &str) = (row.get(0), row.get(1));
            server.settings.push(format!("{name} = {value}"));
        }
        Ok(server)
    }

    /// Creates an empty database after a checkpoint, so that writes of the previous measurement do
    /// not slow down the next.
    pub(in crate::run) async fn database(&self) -> anyhow::Result<Database> {
        let database = Database::on(&self.url).await;
        let client = connect(&self.url).await?;
        client.batch_execute("CHECKPOINT").await?;
        Ok(database)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match self.cluster {
            Some(_) => "started by the harness",
            None => "given by --postgres",
        };
        let settings = self.settings.join(", ");
        writeln!(f, "- PostgreSQL {}, {whose}: {settings}", self.version)
    }
}

/// Connects, and runs the connection in a task.
pub(in crate::run) async fn connect(url: &str) -> anyhow::Result<tokio_postgres::Client> {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, connection) = connected.context("cannot connect to PostgreSQL")?;
    tokio::spawn(connection);
    Ok(client)
}

/// The number that a statement returns.
pub(in crate::run) async fn count(url: &str, sql: &str) -> anyhow::Result<i64> {
    let client = connect(url).await?;
    Ok(client.query_one(sql, &[]).await?.try_get(0)?)
}

/// Turns TLS off, because the cost of encryption is not measured.
fn without_tls(url: &str) -> String {
    match url.split_once('?') {
        Some((_, query)) if query.contains("sslmode=") => url.to_owned(),
        Some(_) => format!("{url}&sslmode=disable"),
        None => format!("{url}?sslmode=disable"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_off_unless_the_address_says_otherwise() {
        for (url, expected) in [
            ("postgres://h/d", "postgres://h/d?sslmode=disable"),
            ("postgres://h/d?a=b", "postgres://h/d?a=b&sslmode=disable"),
            (
                "postgres://h/d?sslmode=require",
                "postgres://h/d?sslmode=require",
            ),
        ] {
            assert_eq!(without_tls(url), expected);
        }
    }
}
