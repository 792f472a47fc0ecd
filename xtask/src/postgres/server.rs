//! A PostgreSQL server for a task, with TLS. It ends when the value is dropped or the task ends.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::programs::Programs;
use crate::{certify::certify, port::free_port};

/// Configuration of the server. Its data is deleted with the task, so nothing is synced to disk.
const CONFIGURATION: &str = "
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
max_connections = 200
dynamic_shared_memory_type = 'mmap'
ssl = on
ssl_cert_file = '../server.pem'
ssl_key_file = '../server.key'
";
/// A file system in memory. Creating files is most of the cost of a fresh database, and every test
/// creates one.
const MEMORY: &str = "/dev/shm";
/// Minimum free space in memory, in MiB: several times what a run of all tests uses.
const PLENTY: u64 = 4096;
const SCRATCH: &str = "scratch";
const PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    folder: PathBuf,
    port: u16,
    process: Child,
}

impl Server {
    /// Creates a server of this version, starts it, and waits until it accepts connections.
    pub(crate) fn start(programs: &Programs) -> anyhow::Result<Self> {
        let folder = place().join(format!("hapax-chore-{}", std::process::id()));
        let _left = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).context("cannot create a folder for a server")?;
        programs.own(&folder);
        let scratch = folder.join(SCRATCH);
        fs::create_dir(&scratch)?;
        fs::set_permissions(&scratch, fs::Permissions::from_mode(0o1777))?;
        certify(&folder, "localhost")?;
        programs.own(&folder.join("server.key"));
        let data = folder.join("data");
        let mut initdb = programs.command("initdb");
        initdb.arg("--pgdata").arg(&data).stdout(Stdio::null());
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8"]);
        succeed(initdb.args(["--locale=C", "--no-sync"]))?;
        fs::write(data.join("postgresql.auto.conf"), CONFIGURATION)?;
        let port = free_port();
        let mut postgres = programs.server(Some(&folder));
        postgres.arg("-D").arg(&data);
        postgres.args(["-p", &port.to_string()]);
        let log = fs::File::create(folder.join("log"))?;
        postgres.stdout(log.try_clone()?).stderr(log);
        let process = postgres.spawn().context("cannot start a server")?;
        let server = Self {
            folder,
            port,
            process,
        };
        server.ready()?;
        Ok(server)
    }

    /// The URL of the server, as a superuser.
    pub(crate) fn url(&self) -> String {
        self.database("postgres")
    }

    fn database(&self, name: &str) -> String {
        format!("postgres://postgres@localhost:{}/{name}", self.port)
    }

    /// Adds the tables of Hapax to the template of new databases.
    pub(crate) fn stock(&self, hapax: &Path) -> anyhow::Result<()> {
        let template = self.database("template1");
        let mut migrate = Command::new(hapax);
        migrate.args(["migrate", "--database", &template]);
        succeed(migrate.stdout(Stdio::null()))
    }

    /// A folder for the files of the tests. Every user may write to it, and it is removed with the
    /// server.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.folder.join(SCRATCH)
    }

    /// The certificate of the authority that signed the server's certificate.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    fn ready(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        // The server writes its state to this file.
        let state = self.folder.join("data/postmaster.pid");
        while !fs::read_to_string(&state).is_ok_and(|text| text.contains("\nready")) {
            if began.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                bail!("the server did not start: {log}");
            }
            #[expect(clippy::disallowed_methods, reason = "the server signals nothing")]
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ended = self.process.wait();
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

/// The parent folder of the server's files. It is in memory if enough memory is free and programs
/// may be executed from there, which some tests do.
fn place() -> PathBuf {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    if !may_run(&mounts) {
        return std::env::temp_dir();
    }
    let asked = Command::new("df")
        .args(["--output=avail", "--block-size=1M", MEMORY])
        .output();
    let said = asked.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    match said.as_deref().ok().and_then(free) {
        Some(free) if free >= PLENTY => MEMORY.into(),
        _ => std::env::temp_dir(),
    }
}

/// Whether, according to `/proc/mounts`, programs may be executed from memory.
fn may_run(mounts: &str) -> bool {
    let fields = mounts.lines().map(|line| line.split(' '));
    let mut options = fields.filter_map(|mut it| (it.nth(1)? == MEMORY).then(|| it.nth(1))?);
    options.any(|it| it.split(',').all(|option| option != "noexec"))
}

/// Parses the output of `df`: a number below a heading.
fn free(said: &str) -> Option<u64> {
    said.lines().nth(1)?.trim().parse().ok()
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status();
    let status = status.with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_read_and_nothing_is_taken_for_plenty() {
        assert_eq!(free(" Avail\n 24105\n"), Some(24105));
        assert_eq!(free(" Avail\n     -\n"), None);
        assert_eq!(free(""), None);
    }

    #[test]
    fn memory_that_runs_no_programs_is_left_alone() {
        let mounts =
            |options: &str| format!("proc /proc proc rw 0 0\ntmpfs /dev/shm tmpfs {options} 0 0\n");
        assert!(may_run(&mounts("rw,nosuid,nodev")));
        assert!(!may_run(&mounts("rw,nosuid,nodev,noexec")));
        assert!(!may_run("tmpfs /dev/shm/inside tmpfs rw 0 0\n"));
    }

    #[test]
    fn a_server_leaves_nothing_behind() {
        let server = Server::start(&Programs::find().unwrap()).unwrap();
        let folder = server.folder.clone();
        assert!(folder.join("data/PG_VERSION").is_file());
        fs::write(server.scratch().join("a"), "b").unwrap();
        drop(server);
        assert!(!folder.exists(), "{} is still there", folder.display());
    }
}
