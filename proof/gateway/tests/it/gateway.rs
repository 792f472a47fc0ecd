//! Fixture: `hapax gateway` as a process on a database, which a test may kill and start again.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

pub(crate) use hapax_testkit::both_stores::Store;
use hapax_testkit::{
    port::free_port,
    postgres::Database,
    program::{Program, run_to_end},
    relay::hapax,
    wait::eventually,
};
use tempfile::TempDir;

use crate::wire::{Answer, PATIENCE, exchange, order};

/// The text of the log when the listeners serve.
const STARTED: &str = "gateway started";

/// A database that is deleted when it is dropped.
#[derive(Debug)]
pub(crate) enum Home {
    /// A folder with a file.
    File(TempDir),
    /// A database on the tests' server.
    Server(Database),
}

impl Home {
    pub(crate) async fn fresh(on: Store) -> Arc<Self> {
        Arc::new(match on {
            Store::Sqlite => Self::File(tempfile::tempdir().unwrap()),
            Store::Postgres => Self::Server(Database::fresh().await),
        })
    }

    fn url(&self) -> String {
        match self {
            Self::File(folder) => format!("sqlite:{}", folder.path().join("keys.db").display()),
            Self::Server(database) => database.url(),
        }
    }
}

/// A gateway that runs, or was killed. Its port and its database stay the same.
#[derive(Debug)]
pub(crate) struct Gateway {
    home: Arc<Home>,
    port: u16,
    folder: TempDir,
    program: Program,
    starts: usize,
}

impl Gateway {
    /// Starts a gateway with this configuration, in which `LISTEN` is replaced by its address.
    pub(crate) async fn start(home: &Arc<Home>, configuration: &str) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let listen = format!("127.0.0.1:{port}");
        let text = configuration.replace("LISTEN", &listen);
        fs::write(folder.path().join("hapax.toml"), text).unwrap();
        let program = program(home, folder.path(), 0, None);
        let mut gateway = Self {
            home: Arc::clone(home),
            port,
            folder,
            program,
            starts: 0,
        };
        assert!(gateway.serves().await, "{}", gateway.log());
        gateway
    }

    /// Starts a gateway on a new SQLite file in front of a service, with the usual route.
    pub(crate) async fn before(upstream: SocketAddr) -> Self {
        let home = Home::fresh(Store::Sqlite).await;
        Self::start(&home, &configuration(upstream, "")).await
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    pub(crate) fn kill(&mut self) {
        self.program.kill();
    }

    /// Kills it with SIGKILL, and starts it again.
    pub(crate) async fn restart(&mut self) {
        assert!(self.restart_at(None).await, "{}", self.log());
    }

    /// Kills it, and starts it again with a failpoint, such as `sqlite.commit.after:2`. Returns
    /// whether it serves: the failpoint may have killed it before.
    pub(crate) async fn restart_at(&mut self, failpoint: Option<&str>) -> bool {
        self.program.kill();
        self.starts += 1;
        self.program = program(&self.home, self.folder.path(), self.starts, failpoint);
        self.serves().await
    }

    pub(crate) fn signal(&self, name: &str) {
        self.program.signal(name);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.program.has_ended()
    }

    /// The log since the last start.
    pub(crate) fn log(&self) -> String {
        self.program.log()
    }

    /// Replaces the configuration, and has the gateway read it.
    pub(crate) async fn reload(&self, configuration: &str) {
        let reloads = || self.log().matches("configuration reloaded").count();
        let before = reloads();
        self.reload_wrong(configuration);
        eventually(PATIENCE, async || reloads() > before).await;
    }

    /// Replaces the configuration with one that may be refused.
    pub(crate) fn reload_wrong(&self, configuration: &str) {
        let listen = self.address().to_string();
        let text = configuration.replace("LISTEN", &listen);
        fs::write(self.folder.path().join("hapax.toml"), text).unwrap();
        self.signal("HUP");
    }

    /// Waits for the end of a gateway that is at a failpoint.
    pub(crate) async fn ended(&mut self) {
        self.program.ended().await;
    }

    /// A part of the memory of the process as the kernel counts it, in bytes: `VmHWM`, the most that was
    /// resident at once, or `RssFile`, the resident pages of the program file.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.program.id())).unwrap();
        let mut lines = status.lines().filter_map(|line| line.split_once(':'));
        let value = lines.find_map(|(known, value)| (known == name).then_some(value));
        let kib = value.and_then(|it| it.trim().strip_suffix(" kB"));
        kib.and_then(|it| it.parse::<u64>().ok()).unwrap() * 1024
    }

    /// Sends an order, and returns the response.
    pub(crate) async fn order(&self, key: &str, faults: &str) -> Answer {
        exchange(self.address(), &order(key, faults)).await.unwrap()
    }

    /// Sends an order until the outcome is known, or known to be unknown.
    pub(crate) async fn decided(&self, key: &str) -> Answer {
        let mut decided = None;
        eventually(PATIENCE, async || {
            // A gateway that was just killed, or an upstream that is just down, has no answer.
            let answer = exchange(self.address(), &order(key, "")).await.ok();
            decided = answer.filter(|it| it.status < 300 || it.is_unknown());
            decided.is_some()
        })
        .await;
        decided.unwrap()
    }

    /// Decides as an operator that an order did not happen.
    pub(crate) fn decide_did_not_happen(&self, key: &str) {
        self.decide(key, &["--did-not-happen"]);
    }

    /// Decides as an operator that an order has happened, with this answer of the service.
    pub(crate) fn decide_happened(&self, key: &str, text: &str) {
        let path = self.folder.path().join("decided.json");
        fs::write(&path, text).unwrap();
        let path = path.display().to_string();
        self.decide(key, &["--happened", "--status", "201", "--body", &path]);
    }

    fn decide(&self, key: &str, outcome: &[&str]) {
        let operation = "gateway:POST /{*path}";
        let decide = ["gateway", "unknown", "decide", operation, key];
        let mut command = hapax(&binary(), &decide);
        command.args(outcome);
        command.args(["--reason", "a test", "--yes"]);
        command.args(["--database", &self.home.url()]);
        run_to_end(command).ended(0);
    }

    /// Waits until it serves, or has ended.
    async fn serves(&mut self) -> bool {
        let mut is_serving = false;
        eventually(PATIENCE, async || {
            is_serving = self.program.log().contains(STARTED);
            is_serving || self.program.has_ended()
        })
        .await;
        is_serving && !self.program.has_ended()
    }
}

fn program(home: &Home, folder: &Path, start: usize, failpoint: Option<&str>) -> Program {
    let mut command: Command = hapax(&binary(), &["gateway", "--log", "json"]);
    command.args(["--database", &home.url()]);
    command.arg("--config").arg(folder.join("hapax.toml"));
    if let Some(failpoint) = failpoint {
        command.env("HAPAX_FAILPOINT", failpoint);
    }
    Program::start(command, &folder.join(format!("log-{start}")))
}

/// The program under test, which the build of the workspace leaves beside the tests.
pub(crate) fn binary() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("../debug/hapax")
}

/// The configuration of a gateway in front of a service, with further lines for its route.
pub(crate) fn configuration(upstream: SocketAddr, route: &str) -> String {
    configuration_with(upstream, "", route)
}

/// The same with further lines for the upstream.
pub(crate) fn configuration_with(upstream: SocketAddr, service: &str, route: &str) -> String {
    format!(
        r#"
[database]
schema = "apply"
[gateway]
wait = "300ms"
lease = "1500ms"
[gateway.listeners.http]
listen = "LISTEN"
[gateway.upstreams.service]
instances = ["http://{upstream}"]
eject = "5ms"
eject_max = "20ms"
{service}
[gateway.routes.all]
path = "/{{*path}}"
upstream = "service"
timeout = "1s"
{route}
"#
    )
}
