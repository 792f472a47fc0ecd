//! A private PostgreSQL server that a test may break.
//!
//! It runs the installed programs with its own port and directory, with durability as in production
//! (`fsync` and `full_page_writes` are on), and with little memory. It ends when the value is
//! dropped or when the process of the test dies.

mod failover;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use super::{connect, found, programs::Programs, terminate_backends};
use crate::{
    machine_faults::MachineFaults,
    port::free_port,
    power::{Disk, Frozen, copy},
    program::succeed,
    wait::{Patience, eventually},
};

/// How long a server may take to start, to recover, or to reload its settings.
const PATIENCE: Duration = Duration::from_secs(30);

const CONFIGURATION: &str = "
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = on
full_page_writes = on
synchronous_commit = on
shared_buffers = '16MB'
max_connections = 100
wal_level = 'replica'
max_wal_size = '128MB'
dynamic_shared_memory_type = 'mmap'
deadlock_timeout = '200ms'
";

/// A server, running or stopped. Dropping it stops it and removes its files.
#[derive(Debug)]
pub struct Cluster {
    programs: Programs,
    directory: TempDir,
    port: u16,
    postmaster: Option<Child>,
    disk: Option<Disk>,
    machine_faults: Option<MachineFaults>,
}

impl Cluster {
    /// Creates and starts a server.
    ///
    /// # Panics
    /// Panics if PostgreSQL is not installed or does not start.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Creates and starts a server with settings that cannot be changed while it runs.
    ///
    /// # Panics
    /// Panics if PostgreSQL is not installed or does not start.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_in(&tempfile::env::temp_dir(), settings).await
    }

    /// Creates and starts a server with settings, whose files are below `parent`.
    ///
    /// # Panics
    /// Panics if PostgreSQL is not installed or does not start.
    pub async fn start_in(parent: &Path, settings: &[(&str, &str)]) -> Self {
        let mut cluster = Self::in_directory(parent);
        cluster.make(settings).await;
        cluster
    }

    /// Creates and starts a server that writes through a preloaded library: see
    /// [`after_power_loss`](Self::after_power_loss).
    ///
    /// # Panics
    /// Panics if PostgreSQL is not installed or does not start.
    pub async fn start_on(disk: &Disk, settings: &[(&str, &str)]) -> Self {
        let mut cluster = Self::in_directory(&tempfile::env::temp_dir());
        let disk = disk.within(cluster.directory.path());
        cluster.disk = Some(disk);
        cluster.make(settings).await;
        cluster
    }

    /// Creates and starts a server with this preloaded library, which injects
    /// [`machine_faults`](Self::machine_faults).
    ///
    /// # Panics
    /// Panics if PostgreSQL is not installed or does not start.
    pub async fn start_with_faults(library: &Path, settings: &[(&str, &str)]) -> Self {
        let mut cluster = Self::in_directory(&tempfile::env::temp_dir());
        cluster.machine_faults = Some(MachineFaults::none_within(
            cluster.directory.path(),
            library,
        ));
        cluster.make(settings).await;
        cluster
    }

    /// The faults of the server, if it was started with them.
    pub fn machine_faults(&self) -> Option<&MachineFaults> {
        self.machine_faults.as_ref()
    }

    /// Waits until the server accepts connections. Starts it if it has ended by itself.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub async fn is_up(&mut self) {
        let (url, patience) = (self.url(), Patience::within(PATIENCE));
        let connects = || tokio_postgres::connect(&url, NoTls);
        while patience.bounds(connects()).await.is_err() {
            if self.has_ended() {
                self.postmaster = None;
                return self.start_again().await;
            }
            patience.pause().await;
        }
    }

    /// Starts another server on a copy of this one's files at one moment. This server continues to
    /// run.
    ///
    /// While it is frozen, `spoil` can remove from the copy what a power failure would have lost.
    /// It receives the log of the disk, the data directory, and the directory of the copy.
    ///
    /// # Errors
    /// Fails with the server log if the copy does not start.
    ///
    /// # Panics
    /// Panics if the files cannot be copied.
    pub async fn after_power_loss(
        &self,
        spoil: impl FnOnce(&Path, &Path, &Path),
    ) -> Result<Self, String> {
        let mut other = Self::in_directory(&tempfile::env::temp_dir());
        {
            let postmaster = self.postmaster.as_ref().map(Child::id);
            let _frozen = Frozen::family(postmaster.expect("the server runs")).await;
            copy(&self.data(), &other.data());
            let log = self.disk.as_ref().map(|it| it.log.as_path());
            spoil(log.unwrap_or(Path::new("")), &self.data(), &other.data());
        }
        for lock in ["postmaster.pid", "postmaster.opts"] {
            let _gone = fs::remove_file(other.data().join(lock));
        }
        if other.is_launched().await {
            Ok(other)
        } else {
            Err(other.log())
        }
    }

    async fn make(&mut self, settings: &[(&str, &str)]) {
        let mut initdb = self.programs.command("initdb");
        initdb.arg("--pgdata").arg(self.data());
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8"]);
        // The files have to survive the death of the server, not of the machine, so the output of
        // initdb need not be synced.
        initdb.args(["--locale=C", "--no-sync"]);
        succeed(initdb).await;
        let lines = settings
            .iter()
            .map(|(name, value)| format!("{name} = {}\n", quoted(value)));
        let configuration = CONFIGURATION.to_owned() + &lines.collect::<String>();
        let written = fs::write(self.data().join("postgresql.auto.conf"), configuration);
        written.expect("the configuration can be written");
        self.launch().await;
    }

    /// Creates a read-only standby of this server with streaming replication.
    ///
    /// # Panics
    /// Panics if the copy cannot be made or does not start.
    pub async fn standby(&self) -> Self {
        let mut standby = Self::in_directory(&tempfile::env::temp_dir());
        let mut copy = standby.programs.command("pg_basebackup");
        copy.arg("--dbname").arg(self.url());
        copy.arg("--pgdata").arg(standby.data());
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
        succeed(copy).await;
        standby.launch().await;
        standby
    }

    /// Starts another server and restores a dump of the database `postgres` into it.
    ///
    /// # Panics
    /// Panics if the dump or the restore fails.
    pub async fn restored(&self) -> Self {
        let other = Self::start().await;
        let file = other.directory.path().join("dump");
        let mut dump = self.programs.command("pg_dump");
        dump.arg("--dbname").arg(self.url());
        dump.arg("--file").arg(&file);
        succeed(dump).await;
        let mut restore = self.programs.command("psql");
        restore.arg("--dbname").arg(other.url());
        restore.args(["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--file"]);
        restore.arg(&file);
        succeed(restore).await;
        other
    }

    /// The URL of the database `postgres`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// The address, as `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Opens a plain connection.
    ///
    /// # Panics
    /// Panics if the server cannot be reached.
    pub async fn client(&self) -> Client {
        connect(&self.url()).await
    }

    /// Stops the server immediately, like a crash: nothing is flushed, and the next start recovers.
    ///
    /// # Panics
    /// Panics if it does not stop.
    pub async fn stop_immediate(&mut self) {
        succeed(self.stop()).await;
        self.reap();
    }

    /// Starts the server again on the same port, and waits until it accepts connections.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub async fn start_again(&mut self) {
        assert!(self.postmaster.is_none(), "the server runs already");
        let started = self.try_launch().await;
        assert!(started, "the server did not start: {}", self.log());
    }

    /// Promotes a standby, and waits until it accepts writes.
    ///
    /// # Panics
    /// Panics if it is not a standby.
    pub async fn promote(&self) {
        let client = self.client().await;
        let promoted = client.query_one("SELECT pg_promote()", &[]).await;
        let promoted: bool = promoted.expect("a standby can be promoted").get(0);
        assert!(promoted, "the standby was not promoted in time");
    }

    /// Terminates all connections with this application name. Returns their number.
    ///
    /// # Panics
    /// Panics if the server cannot be reached.
    pub async fn terminate_backends(&self, application_name: &str) -> u64 {
        terminate_backends(&self.client().await, application_name, None).await
    }

    /// Changes settings while the server runs. New connections have them when this returns;
    /// settings that require a restart take effect after the next start.
    ///
    /// # Panics
    /// Panics if a setting is refused or the server cannot be reached.
    pub async fn settings(&self, settings: &[(&str, &str)]) {
        const LOADED: &str = "SELECT pg_conf_load_time()::text";
        let client = self.client().await;
        let before: String = one(&client, LOADED).await;
        for (name, value) in settings {
            let set = format!("ALTER SYSTEM SET {name} = {}", quoted(value));
            let set = client.batch_execute(&set).await;
            set.unwrap_or_else(|error| panic!("cannot set {name} to {value}: {error}"));
        }
        let _told: bool = one(&client, "SELECT pg_reload_conf()").await;
        eventually(PATIENCE, async || {
            one::<String>(&self.client().await, LOADED).await != before
        })
        .await;
    }

    /// The server log of all runs so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn in_directory(parent: &Path) -> Self {
        Self::of(found(), parent)
    }

    fn of(programs: Programs, parent: &Path) -> Self {
        let mut directory = tempfile::Builder::new();
        let directory = directory.prefix("hapax_cluster_").tempdir_in(parent);
        let directory = directory.expect("a temporary directory can be created");
        programs.own(directory.path());
        Self {
            programs,
            directory,
            port: 0,
            postmaster: None,
            disk: None,
            machine_faults: None,
        }
    }

    /// Starts the server on the first free port. Another process may take a port between check and
    /// bind.
    async fn launch(&mut self) {
        let is_launched = self.is_launched().await;
        assert!(is_launched, "the server did not start: {}", self.log());
    }

    async fn is_launched(&mut self) -> bool {
        for _ in 0..5 {
            self.port = free_port();
            if self.try_launch().await {
                return true;
            }
        }
        false
    }

    /// Starts the server. Returns false if it ended instead of accepting connections.
    async fn try_launch(&mut self) -> bool {
        let mut postgres = self.programs.server(None);
        postgres.arg("-D").arg(self.data());
        postgres.arg("-p").arg(self.port.to_string());
        postgres.envs(self.disk.iter().flat_map(Disk::environment));
        postgres.envs(
            self.machine_faults
                .iter()
                .flat_map(MachineFaults::environment),
        );
        let path = self.directory.path().join("log");
        let log = fs::File::options().create(true).append(true).open(path);
        let log = log.expect("the log can be created");
        let both = log.try_clone().expect("the log file can be duplicated");
        let started = postgres.stdout(log).stderr(both).spawn();
        self.postmaster = Some(started.expect("the server can be started"));
        let (url, patience) = (self.url(), Patience::within(PATIENCE));
        let connects = || tokio_postgres::connect(&url, NoTls);
        while patience.bounds(connects()).await.is_err() {
            if self.has_ended() {
                self.postmaster = None;
                return false;
            }
            patience.pause().await;
        }
        true
    }

    fn has_ended(&mut self) -> bool {
        let postmaster = self.postmaster.as_mut();
        postmaster.is_none_or(|it| !matches!(it.try_wait(), Ok(None)))
    }

    fn stop(&self) -> Command {
        let mut stop = self.programs.command("pg_ctl");
        stop.args(["stop", "--mode=immediate", "--silent", "--pgdata"]);
        stop.arg(self.data());
        stop
    }

    /// Waits for a server that is stopping, and kills it if necessary.
    fn reap(&mut self) {
        let Some(mut postmaster) = self.postmaster.take() else {
            return;
        };
        for _ in 0..500 {
            if !matches!(postmaster.try_wait(), Ok(None)) {
                return;
            }
            pause();
        }
        let _killed = postmaster.kill();
        let _ended = postmaster.wait();
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // An immediate stop is a crash that also removes the shared memory. SIGKILL, for a server
        // that does not react, would not remove it.
        if self.postmaster.is_some() {
            let stop = self.stop().stderr(Stdio::null()).output();
            if !stop.is_ok_and(|ended| ended.status.success()) {
                let _killed = self.postmaster.as_mut().map(Child::kill);
            }
            self.reap();
        }
        // The last child processes may still be writing.
        for _ in 0..500 {
            if fs::remove_dir_all(self.directory.path()).is_ok() {
                break;
            }
            pause();
        }
    }
}

/// The value of a statement that returns one row and one column.
async fn one<T>(client: &Client, sql: &str) -> T
where
    T: for<'a> tokio_postgres::types::FromSql<'a>,
{
    let row = client.query_one(sql, &[]).await;
    row.unwrap_or_else(|error| panic!("{sql}: {error}")).get(0)
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the wait for a server that ends is outside any runtime"
)]
fn pause() {
    thread::sleep(Duration::from_millis(10));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::Database;

    #[tokio::test]
    async fn a_cluster_is_durable_and_keeps_what_was_committed_through_an_immediate_stop() {
        let mut cluster = Cluster::start().await;
        let client = cluster.client().await;
        for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
            let on: String = one(&client, &format!("SHOW {setting}")).await;
            assert_eq!(on, "on", "{setting}");
        }
        let made = "CREATE TABLE row (); INSERT INTO row DEFAULT VALUES";
        client.batch_execute(made).await.unwrap();
        cluster.stop_immediate().await;
        assert!(client.simple_query("SELECT 1").await.is_err());
        assert!(
            tokio_postgres::connect(&cluster.url(), NoTls)
                .await
                .is_err()
        );
        cluster.start_again().await;
        let count: i64 = one(&cluster.client().await, "SELECT count(*) FROM row").await;
        assert_eq!(count, 1);
    }

    #[tokio::test]
    async fn a_standby_follows_reads_only_and_can_be_promoted() {
        let cluster = Cluster::start().await;
        let standby = cluster.standby().await;
        let client = cluster.client().await;
        client.batch_execute("CREATE TABLE row ()").await.unwrap();
        let there = standby.client().await;
        eventually(PATIENCE, async || {
            one(&there, "SELECT to_regclass('row') IS NOT NULL").await
        })
        .await;
        let write = "INSERT INTO row DEFAULT VALUES";
        assert!(there.batch_execute(write).await.is_err());
        standby.promote().await;
        there.batch_execute(write).await.unwrap();
    }

    #[tokio::test]
    async fn a_restored_server_holds_the_same_and_is_another_one() {
        const NAME: &str = "SELECT system_identifier::text FROM pg_control_system()";
        let cluster = Cluster::start().await;
        let client = cluster.client().await;
        let made = "CREATE TABLE row (); INSERT INTO row DEFAULT VALUES";
        client.batch_execute(made).await.unwrap();
        let restored = cluster.restored().await;
        let there = restored.client().await;
        let count: i64 = one(&there, "SELECT count(*) FROM row").await;
        assert_eq!(count, 1);
        let names: [String; 2] = [one(&client, NAME).await, one(&there, NAME).await];
        assert_ne!(names[0], names[1]);
    }

    #[tokio::test]
    async fn settings_change_while_it_runs_and_databases_are_made_on_it() {
        let cluster = Cluster::start_with(&[("max_connections", "30")]).await;
        cluster.settings(&[("work_mem", "1234kB")]).await;
        let database = Database::on(&cluster.url()).await;
        let client = database.client().await;
        let set: String = one(&client, "SHOW work_mem").await;
        assert_eq!(set, "1234kB");
        let set: String = one(&client, "SHOW max_connections").await;
        assert_eq!(set, "30");
        let named = format!("{}?application_name=somebody", database.url());
        let named = connect(&named).await;
        assert_eq!(cluster.terminate_backends("somebody").await, 1);
        eventually(PATIENCE, async || named.simple_query("").await.is_err()).await;
        client.simple_query("").await.unwrap();
    }

    #[tokio::test]
    async fn a_database_is_dropped_with_its_replication_slots() {
        const LEFT: &str = "SELECT (SELECT count(*) FROM pg_replication_slots)
            + (SELECT count(*) FROM pg_database WHERE datname LIKE 'hapax%')";
        let cluster = Cluster::start_with(&[("wal_level", "logical")]).await;
        let database = Database::on(&cluster.url()).await;
        let made = "SELECT pg_create_logical_replication_slot('slot', 'pgoutput')";
        database.client().await.batch_execute(made).await.unwrap();
        let count: i64 = one(&cluster.client().await, LEFT).await;
        assert_eq!(count, 2);
        drop(database);
        let count: i64 = one(&cluster.client().await, LEFT).await;
        assert_eq!(count, 0);
    }

    #[tokio::test]
    async fn a_dropped_cluster_leaves_no_server_and_no_files() {
        let cluster = Cluster::start().await;
        let (url, path) = (cluster.url(), cluster.directory.path().to_owned());
        drop(cluster);
        assert!(tokio_postgres::connect(&url, NoTls).await.is_err());
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_server_ends_when_the_process_that_started_it_dies() {
        let mut cluster = Cluster::start().await;
        // Closes the pipe, as the death of this process does.
        drop(cluster.postmaster.as_mut().and_then(|it| it.stdin.take()));
        eventually(PATIENCE, async || cluster.has_ended()).await;
    }
}
