//! `hapax relay` as a child process.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    http::{HttpClient, HttpResponse},
    program::Program,
    wait::eventually,
};

/// The secret that signs the webhooks of the tests.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// How long a relay may take to log something.
const PATIENCE: Duration = Duration::from_secs(30);

/// The command of the binary `hapax` at `path` with these arguments, in an empty environment, not
/// started.
///
/// # Panics
/// Panics if the binary is not built.
pub fn hapax(path: &Path, arguments: &[&str]) -> Command {
    assert!(
        path.exists(),
        "the relay is not built: run `cargo build --package hapax-server` once"
    );
    let mut command = Command::new(path);
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// A running relay. Dropping it kills the process.
#[derive(Debug)]
pub struct Relay {
    program: Program,
    folder: TempDir,
    url: String,
    ready: Value,
}

impl Relay {
    /// Starts the relay of a [command](fn@hapax) without arguments, with this configuration and these
    /// further arguments, and waits until it delivers.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub async fn start(
        mut command: Command,
        database: &str,
        configuration: &str,
        arguments: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory can be created");
        let config = folder.path().join("hapax.toml");
        fs::write(&config, configuration).expect("the configuration can be written");
        command
            .args(["relay", "--listen", "127.0.0.1:0", "--log", "json"])
            .args(["--database", database, "--config"])
            .arg(&config)
            .args(arguments);
        let mut relay = Self {
            program: Program::start(command, &folder.path().join("log")),
            folder,
            url: String::new(),
            ready: Value::Null,
        };
        relay.ready = relay.logged("relay started").await;
        relay.url = format!("http://{}", relay.listener("listen"));
        relay
    }

    /// Waits for a log entry with this message, and returns the first one.
    ///
    /// # Panics
    /// Panics if it does not come in time, or the relay ends.
    pub async fn logged(&mut self, message: &str) -> Value {
        let mut found = None;
        eventually(PATIENCE, async || {
            let has_ended = self.program.has_ended();
            let mut lines = self.lines().into_iter();
            found = lines.find(|line| line["fields"]["message"] == message);
            assert!(
                found.is_some() || !has_ended,
                "the relay ended: {}",
                self.log()
            );
            found.is_some()
        })
        .await;
        found.expect("the condition holds")
    }

    /// The entries of the log.
    pub fn lines(&self) -> Vec<Value> {
        let log = self.log();
        let lines = log.lines();
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// The log and the output so far, as text.
    pub fn log(&self) -> String {
        self.program.log()
    }

    /// The time in milliseconds from the start until the relay delivered, as the relay measured it.
    ///
    /// # Panics
    /// Panics if the relay did not log it.
    pub fn ready_ms(&self) -> u64 {
        let millis = self.ready["fields"]["ready_ms"].as_u64();
        millis.expect("the relay logs how long it took")
    }

    /// A file in the folder of its configuration, `hapax.toml`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Requests a page.
    ///
    /// # Panics
    /// Panics if there is no response.
    pub async fn get(&self, path: &str) -> HttpResponse {
        let answer = HttpClient::new().get(&format!("{}{path}", self.url)).await;
        answer.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The address of the relay's listener, as `host:port`.
    pub fn address(&self) -> &str {
        self.listener("listen")
    }

    /// The address of the admin API's listener, as `host:port`.
    pub fn admin_address(&self) -> &str {
        self.listener("admin_listen")
    }

    fn listener(&self, name: &str) -> &str {
        let address = self.ready["fields"][name].as_str();
        address.unwrap_or_else(|| panic!("the relay logs no {name}: {}", self.ready))
    }

    /// The number of open file descriptors.
    ///
    /// # Panics
    /// Panics if the process has ended.
    pub fn descriptors(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.program.id()));
        open.expect("the process exists").count()
    }

    /// The state of a destination in the response of `/readyz`.
    ///
    /// # Panics
    /// Panics if there is no response.
    pub async fn state(&self, destination: &str) -> String {
        let ready = self.get("/readyz").await.json().expect("a JSON response");
        let state = ready["destinations"][destination].as_str();
        state.unwrap_or_default().to_owned()
    }

    /// The resident memory of the process in KiB.
    ///
    /// # Panics
    /// Panics if the process has ended.
    pub fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.program.id()));
        let status = status.expect("the process exists");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let figure = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        figure.expect("the system reports the memory")
    }

    /// Sends the signal with this name.
    pub fn signal(&self, name: &str) {
        self.program.signal(name);
    }

    /// Waits until the process has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        self.program.ended().await
    }

    /// Stops the relay as an operator would. Returns its complete log.
    pub async fn stop(mut self) -> String {
        self.program.stop().await;
        self.log()
    }

    /// Kills the relay, as in a crash.
    pub fn kill(mut self) {
        self.program.kill();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if thread::panicking() {
            let _shown = io::stderr().write_all(self.log().as_bytes());
        }
    }
}
