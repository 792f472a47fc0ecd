//! Database dumps, restored into another database or over the same one.

use std::path::PathBuf;

use tempfile::TempDir;
use tokio_postgres::Client;

use super::{Cluster, connect, found, with_database};
use crate::program::succeed;

/// A dump of one database by `pg_dump`. Dropping it removes its file.
#[derive(Debug)]
pub struct Dump {
    directory: TempDir,
}

impl Dump {
    fn file(&self) -> PathBuf {
        self.directory.path().join("dump.sql")
    }
}

/// The directory of the PostgreSQL programs.
///
/// # Panics
/// Panics if PostgreSQL is not installed.
pub fn programs() -> PathBuf {
    found().directory().to_owned()
}

impl Cluster {
    /// The URL of a database.
    pub fn url_of(&self, database: &str) -> String {
        with_database(&self.url(), database)
    }

    /// Opens a plain connection to a database.
    ///
    /// # Panics
    /// Panics if the server cannot be reached.
    pub async fn client_of(&self, database: &str) -> Client {
        connect(&self.url_of(database)).await
    }

    /// Creates an empty database.
    ///
    /// # Panics
    /// Panics if it cannot be created.
    pub async fn create(&self, database: &str) {
        let create = format!("CREATE DATABASE {database} TEMPLATE template0");
        self.run(&create).await;
    }

    /// Dumps a database.
    ///
    /// # Panics
    /// Panics if the dump fails.
    pub async fn dump(&self, database: &str) -> Dump {
        let programs = found();
        let mut directory = tempfile::Builder::new();
        let directory = directory.prefix("hapax_dump_").tempdir();
        let directory = directory.expect("a temporary directory can be created");
        programs.own(directory.path());
        let dumped = Dump { directory };
        let mut dump = programs.command("pg_dump");
        dump.arg("--dbname").arg(self.url_of(database));
        dump.arg("--file").arg(dumped.file());
        succeed(dump).await;
        dumped
    }

    /// Restores a dump into a database, in one transaction. Existing schemas of Hapax are replaced.
    ///
    /// # Panics
    /// Panics if the restore fails.
    pub async fn restore(&self, dump: &Dump, database: &str) {
        let mut restore = found().command("psql");
        restore.arg("--dbname").arg(self.url_of(database));
        restore.args(["--quiet", "--no-psqlrc", "--single-transaction"]);
        restore.arg("--set=ON_ERROR_STOP=1");
        // A dump with `--clean` fails on partitions.
        let replace = "DROP SCHEMA IF EXISTS hapax, hapax_api CASCADE";
        restore.args(["--command", replace, "--file"]);
        restore.arg(dump.file());
        succeed(restore).await;
    }

    /// Renames `database` to the name of another database, which is renamed to `away`. All
    /// connections to both are terminated.
    ///
    /// # Panics
    /// Panics if they cannot be renamed.
    pub async fn swap(&self, database: &str, name: &str, away: &str) {
        let end = format!(
            "ALTER DATABASE {name} ALLOW_CONNECTIONS false;
             SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
             WHERE datname IN ('{database}', '{name}') AND pid <> pg_backend_pid();
             ALTER DATABASE {name} RENAME TO {away};
             ALTER DATABASE {database} RENAME TO {name}"
        );
        for statement in end.split(';') {
            self.run(statement).await;
        }
    }

    /// Runs a statement in the database `postgres`.
    async fn run(&self, statement: &str) {
        let ran = self.client().await.batch_execute(statement).await;
        ran.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}
