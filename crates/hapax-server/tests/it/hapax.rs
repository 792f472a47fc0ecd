//! The binary as a process: run to its end, or running until the test ends it.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use hapax_testkit::{
    http::{HttpAnswer, HttpClient},
    wait::{Patience, eventually},
};
use serde_json::Value;
use tempfile::TempDir;
use tokio_postgres::Client;

/// How long anything may take before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// What signs the webhooks of the tests.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The binary with these arguments, in an empty environment; not started.
pub(crate) fn hapax(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command.envs(hapax_testkit::seeded::variable());
    command
}

/// How a call ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// What it wrote, as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts how it ended.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// Runs a call to its end.
pub(crate) fn run(arguments: &[&str]) -> Ran {
    run_to_end(hapax(arguments))
}

/// Runs a command to its end; one that hangs is killed.
#[track_caller]
pub(crate) fn run_to_end(mut command: Command) -> Ran {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id().to_string();
    let (ended, over) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        if over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let _gone = Command::new("kill").args(["-9", &id]).status();
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    watchdog.join().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Makes the tables of a database.
#[track_caller]
pub(crate) fn migrate(url: &str) {
    run(&["migrate", "--database", url]).ended(0);
}

/// Emits events by plain SQL, as any service would, in one transaction.
pub(crate) async fn emit(client: &Client, kind: &str, count: usize) {
    let emit = format!(
        "SELECT hapax.emit('{kind}', json_build_object('n', n)::text, 'order', 'o' || n)
         FROM generate_series(1, {count}) AS n"
    );
    client.batch_execute(&emit).await.unwrap();
}

/// A webhook destination to this receiver, as lines of a configuration.
pub(crate) fn webhook(name: &str, url: &str) -> String {
    format!(
        "[destinations.{name}]\n\
         schedule = [\"0s\", \"50ms\", \"100ms\", \"200ms\", \"1s\", \"1s\", \"1s\", \"1s\"]\n\
         sink.webhook = {{ url = \"{url}\", secret = \"{SECRET}\", allow = [\"127.0.0.0/8\"] }}\n"
    )
}

/// A running relay; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Relay {
    child: Child,
    folder: TempDir,
    url: String,
    ready: Value,
}

impl Relay {
    /// Starts one with this configuration, and waits until it carries.
    pub(crate) async fn start(database: &str, configuration: &str) -> Self {
        Self::start_with(database, configuration, &[]).await
    }

    /// The same, with variables of the environment.
    pub(crate) async fn start_with(
        database: &str,
        configuration: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = hapax(&[]);
        command.envs(environment.iter().copied());
        Self::start_by(command, database, configuration).await
    }

    /// The same, with so many descriptors and no more.
    pub(crate) async fn start_within(
        descriptors: u32,
        database: &str,
        configuration: &str,
    ) -> Self {
        let mut command = Command::new("/bin/sh");
        let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_hapax")]);
        command.env_clear().stdin(Stdio::null());
        command.envs(hapax_testkit::seeded::variable());
        Self::start_by(command, database, configuration).await
    }

    async fn start_by(mut command: Command, database: &str, configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("hapax.toml");
        fs::write(&config, configuration).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let child = command
            .args(["relay", "--listen", "127.0.0.1:0", "--log", "json"])
            .args(["--database", database, "--config"])
            .arg(&config)
            .stdout(File::create(folder.path().join("out")).unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let (url, ready) = (String::new(), Value::Null);
        let mut relay = Self {
            child,
            folder,
            url,
            ready,
        };
        relay.ready = relay.logged("relay started").await;
        let address = relay.ready["fields"]["listen"].as_str().unwrap();
        relay.url = format!("http://{address}");
        relay
    }

    /// The first line of its log with this message, once it is there.
    pub(crate) async fn logged(&mut self, message: &str) -> Value {
        let patience = Patience::within(PATIENCE);
        loop {
            if let Some(line) = self
                .lines()
                .into_iter()
                .find(|line| line["fields"]["message"] == message)
            {
                return line;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the relay ended: {status}: {}", self.log());
            }
            patience.pause().await;
        }
    }

    /// The lines of its log.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let log = self.log();
        log.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap()
    }

    /// The milliseconds that it took to carry, by its own clock.
    pub(crate) fn ready_ms(&self) -> u64 {
        self.ready["fields"]["ready_ms"].as_u64().unwrap()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Gets a page.
    pub(crate) async fn get(&self, path: &str) -> HttpAnswer {
        HttpClient::new()
            .get(&format!("{}{path}", self.url))
            .await
            .unwrap()
    }

    /// Where it listens, as `host:port`.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Where its admin API listens, as `host:port`.
    pub(crate) fn admin_address(&self) -> &str {
        self.ready["fields"]["admin_listen"].as_str().unwrap()
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        open.unwrap().count()
    }

    /// What `/readyz` says about a destination.
    pub(crate) async fn state(&self, destination: &str) -> String {
        let ready = self.get("/readyz").await.json().unwrap();
        ready["destinations"][destination]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// KiB of memory that it has for itself.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Sends a signal, by name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &id])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(PATIENCE, async || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }

    /// Ends it as its operator would.
    pub(crate) async fn stop(mut self) {
        self.signal("TERM");
        let status = self.ended().await;
        assert!(status.success(), "{status} {}", self.log());
    }

    /// Ends it as a crash would.
    pub(crate) async fn kill(mut self) {
        self.child.kill().unwrap();
        self.ended().await;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        if thread::panicking() {
            let mut log = String::new();
            let file = File::open(self.folder.path().join("log"));
            let _read = file.and_then(|mut file| file.read_to_string(&mut log));
            let _shown = std::io::stderr().write_all(log.as_bytes());
        }
    }
}
