//! Fixture: pgbouncer in transaction mode, with very few server connections.
//!
//! Each transaction uses the server connection that was idle longest, so that anything that one
//! transaction leaves on a connection affects the next one at once. The pooler ends when its value
//! is dropped, or with the test process.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::Duration,
};

use tempfile::TempDir;
use tokio_postgres::{Config, NoTls, config::Host};

use crate::{
    port::free_port,
    program::{Program, guarded},
    wait::Patience,
};

const INSTALL: &str = "no pgbouncer: install the package pgbouncer";

/// A running pooler.
#[derive(Debug)]
pub struct Pooler {
    program: Program,
    user: String,
    port: u16,
    directory: TempDir,
}

impl Pooler {
    /// Starts a pooler with this number of connections to each database of the server at `url`.
    ///
    /// # Panics
    /// Panics if pgbouncer is not installed or does not start.
    pub async fn before(url: &str, connections: usize) -> Self {
        let directory = tempfile::tempdir().expect("no temporary directory");
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(directory.path(), open).expect("the directory's mode was not set");
        let server: Config = url.parse().expect("the URL of the server is not valid");
        let user = server.get_user().unwrap_or("postgres").to_owned();
        let file = directory.path().join("pgbouncer.ini");
        let port = free_port();
        let text = configuration(&server, directory.path(), port, connections);
        fs::write(&file, text).expect("the configuration was not written");
        let password = String::from_utf8_lossy(server.get_password().unwrap_or_default());
        let users = format!("\"{user}\" \"{password}\"\n");
        fs::write(directory.path().join("users"), users)
            .expect("the list of users was not written");
        let mut command = guarded(program(), "INT");
        command.arg("-q");
        if fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
        {
            // pgbouncer refuses to run as root, and switches to this user itself.
            command.args(["-u", "nobody"]);
        }
        command.arg(&file);
        let pooler = Self {
            program: Program::start(command, &directory.path().join("log")),
            user,
            port,
            directory,
        };
        pooler.ready().await;
        pooler
    }

    /// The URL of a database behind the pooler.
    ///
    /// # Panics
    /// Panics if the path of the temporary directory is not UTF-8.
    pub fn url(&self, database: &str) -> String {
        let path = self
            .directory
            .path()
            .to_str()
            .expect("the path of the temporary directory is not UTF-8");
        let host = path.replace('/', "%2F");
        format!("postgres://{}@{host}:{}/{database}", self.user, self.port)
    }

    /// The URL of a database behind the pooler by TCP, for a driver that accepts no folder as host.
    pub fn tcp_url(&self, database: &str) -> String {
        format!(
            "postgres://{}@127.0.0.1:{}/{database}",
            self.user, self.port
        )
    }

    async fn ready(&self) {
        let patience = Patience::within(Duration::from_secs(20));
        // The pooler accepts connections as soon as its console does.
        let console = self.url("pgbouncer");
        let connects = || tokio_postgres::connect(&console, NoTls);
        while let Err(error) = patience.bounds(connects()).await {
            let log = self.program.log();
            assert!(
                !log.contains("FATAL"),
                "pgbouncer did not start: {error}: {log}"
            );
            patience.pause().await;
        }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // If pgbouncer has crashed, the output of the failing test must say so.
        if self.program.has_ended() {
            let _told = writeln!(io::stderr(), "pgbouncer has ended: {}", self.program.log());
        }
    }
}

fn configuration(server: &Config, directory: &Path, port: u16, connections: usize) -> String {
    let host = match server.get_hosts() {
        [Host::Tcp(name), ..] => name.clone(),
        [Host::Unix(path), ..] => path.display().to_string(),
        [] => "127.0.0.1".to_owned(),
    };
    let server_port = server.get_ports().first().copied().unwrap_or(5432);
    format!(
        "[databases]\n\
         * = host={host} port={server_port}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir = {directory}\n\
         admin_users = {user}\n\
         auth_type = trust\n\
         auth_file = {directory}/users\n\
         pool_mode = transaction\n\
         default_pool_size = {connections}\n\
         server_round_robin = 1\n\
         server_reset_query =\n\
         max_client_conn = 500\n",
        directory = directory.display(),
        user = server.get_user().unwrap_or("postgres"),
    )
}

fn program() -> &'static str {
    let found = [
        "/usr/sbin/pgbouncer",
        "/usr/bin/pgbouncer",
        "/usr/local/bin/pgbouncer",
    ]
    .into_iter()
    .find(|path| Path::new(path).is_file());
    found.unwrap_or_else(|| panic!("{INSTALL}"))
}
