//! Fixture: the `hapax` binary as a process that runs to its end, or until the test ends it.

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

/// The maximum time that a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The secret that signs the webhooks of the tests.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The command of the binary with these arguments, in an empty environment, not started.
pub(crate) fn hapax(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// The exit code and the output of a finished command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Parses the standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// Runs the binary to its end.
pub(crate) fn run(arguments: &[&str]) -> Ran {
    run_to_end(hapax(arguments))
}

/// Runs a command to its end, and kills it if it hangs.
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

/// Creates the tables in a database.
#[track_caller]
pub(crate) fn migrate(url: &str) {
    run(&["migrate", "--database", url]).ended(0);
}

/// Emits events with plain SQL in one transaction, as any service would.
pub(crate) async fn emit(client: &Client, kind: &str, count: usize) {
    let emit = format!(
        "SELECT hapax.emit('{kind}', json_build_object('n', n)::text, 'order', 'o' || n)
         FROM generate_series(1, {count}) AS n"
    );
    client.batch_execute(&emit).await.unwrap();
}

/// The configuration of a webhook destination with this URL.
pub(crate) fn webhook(name: &str, url: &str) -> String {
    format!(
        "[destinations.{name}]\n\
         schedule = [\"0s\", \"50ms\", \"100ms\", \"200ms\", \"1s\", \"1s\", \"1s\", \"1s\"]\n\
         sink.webhook = {{ url = \"{url}\", secret = \"{SECRET}\", allow = [\"127.0.0.0/8\"] }}\n"
    )
}

/// A running relay. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Relay {
    child: Child,
    folder: TempDir,
    url: String,
    ready: Value,
}

impl Relay {
    /// Starts a relay with this configuration, and waits until it delivers.
    pub(crate) async fn start(database: &str, configuration: &str) -> Self {
        Self::start_with(database, configuration, &[]).await
    }

    /// Starts a relay with environment variables.
    pub(crate) async fn start_with(
        database: &str,
        configuration: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = hapax(&[]);
        command.envs(environment.iter().copied());
        Self::start_by(command, database, configuration).await
    }

    /// Starts a relay that may open at most this many file descriptors.
    pub(crate) async fn start_within(
        descriptors: u32,
        database: &str,
        configuration: &str,
    ) -> Self {
        let mut command = Command::new("/bin/sh");
        let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_hapax")]);
        command.env_clear().stdin(Stdio::null());
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

    /// Waits for a log entry with this message, and returns the first one.
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

    /// The entries of the log.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let log = self.log();
        log.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// The log so far, as text.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap()
    }

    /// The time in milliseconds from the start until the relay delivered, as the relay measured it.
    pub(crate) fn ready_ms(&self) -> u64 {
        self.ready["fields"]["ready_ms"].as_u64().unwrap()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Requests a page.
    pub(crate) async fn get(&self, path: &str) -> HttpAnswer {
        HttpClient::new()
            .get(&format!("{}{path}", self.url))
            .await
            .unwrap()
    }

    /// The address of the relay's listener, as `host:port`.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// The address of the admin API's listener, as `host:port`.
    pub(crate) fn admin_address(&self) -> &str {
        self.ready["fields"]["admin_listen"].as_str().unwrap()
    }

    /// The number of open file descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        open.unwrap().count()
    }

    /// The state of a destination in the response of `/readyz`.
    pub(crate) async fn state(&self, destination: &str) -> String {
        let ready = self.get("/readyz").await.json().unwrap();
        ready["destinations"][destination]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// The resident memory of the process in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Sends the signal with this name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &id])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(PATIENCE, async || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }

    /// Stops the relay as an operator would.
    pub(crate) async fn stop(mut self) {
        self.signal("TERM");
        let status = self.ended().await;
        assert!(status.success(), "{status} {}", self.log());
    }

    /// Kills the relay, as in a crash.
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
