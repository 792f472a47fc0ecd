//! The shop as a process, with a folder that is kept between its lives.
//!
//! All lives of an instance use the same port. It is below the range of ephemeral ports: otherwise
//! a client that connects while the shop is not running could get the shop's port as its local
//! port. The process is killed at the end of a test, even if the test fails.

use std::{
    fs::OpenOptions,
    net::SocketAddr,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use hapax_testkit::{port::free_port, wait::Patience};
use tempfile::TempDir;

use super::{client::Client, journal::Outcome};
use crate::simulated_providers::Providers;

/// The secret that signs the shop's webhooks.
pub(super) const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// The secret that signs the messages that the shop receives from the provider.
pub(super) const INBOX_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// The maximum time for a start or a stop on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of attempts of a webhook. Each crash may use one attempt, and an event needs one that
/// succeeds.
const ATTEMPTS: usize = 60;

/// The folder and the port of an instance.
#[derive(Debug)]
pub(super) struct Home {
    folder: Option<TempDir>,
    pub(super) address: SocketAddr,
    webhook: String,
    /// The URL of the shared database, or `None` for a file in the folder.
    database: Option<String>,
    /// The flags with the addresses of the providers.
    providers: Vec<String>,
}

impl Home {
    /// Creates a folder and chooses a free port. `webhook` receives all events, `providers` all
    /// calls.
    pub(super) fn new(webhook: String, database: Option<String>, providers: &Providers) -> Self {
        let folder = tempfile::Builder::new().prefix("shop-kill-").tempdir();
        let folder = Some(folder.expect("a folder can be made"));
        Self {
            folder,
            address: SocketAddr::from(([127, 0, 0, 1], free_port())),
            webhook,
            database,
            providers: providers.flags().to_vec(),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder
            .as_ref()
            .expect("the folder is there until the end")
            .path()
    }

    /// Starts a shop. `failpoint` is the place where it kills itself, as `name:nth`.
    pub(super) fn start(&self, failpoint: Option<&str>) -> Shop {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder().join("shop.log"));
        let log = log.expect("the log can be opened");
        // Each death may use an attempt of every webhook and mail that is being delivered.
        let schedule = vec!["0s"; 2].into_iter().chain(vec!["20ms"; ATTEMPTS]);
        let schedule = schedule.collect::<Vec<_>>().join(",");
        let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
        command
            .args(["--listen", &self.address.to_string()])
            .arg("--data-dir")
            .arg(self.folder())
            .args(["--webhook", &self.webhook, "--allow-net", "127.0.0.0/8"])
            .args(["--webhook-secret", WEBHOOK_SECRET])
            .args(["--webhook-schedule", &schedule])
            .args(["--smtp-schedule", &schedule])
            .args(["--inbox-secret", &format!("provider={INBOX_SECRET}")])
            .args(["--lease", "1s"])
            .args(&self.providers)
            .env_remove("HAPAX_FAILPOINT")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log);
        if let Some(database) = &self.database {
            command.args(["--database", database]);
        }
        if let Some(failpoint) = failpoint {
            command.env("HAPAX_FAILPOINT", failpoint);
        }
        Shop(command.spawn().expect("the shop can be started"))
    }

    /// Keeps the folder for the analysis of a failure.
    pub(super) fn keep(&mut self) -> PathBuf {
        self.folder
            .take()
            .expect("the folder is there until the end")
            .keep()
    }
}

/// A running shop.
#[derive(Debug)]
pub(super) struct Shop(Child);

impl Shop {
    /// Waits until the shop accepts requests.
    ///
    /// # Panics
    /// Panics if the process ends, or is not ready in time.
    pub(super) async fn ready(&mut self, client: &Client) {
        let patience = Patience::within(PATIENCE);
        loop {
            if let Outcome::Answered(answer) = client.get("alice", "/readyz").await
                && answer.status == 200
            {
                return;
            }
            if let Some(status) = self.ended() {
                panic!("the shop ended before it was ready: {status}");
            }
            patience.pause().await;
        }
    }

    /// The exit status, if the process has ended.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("a child can be asked for")
    }

    /// Kills the process with SIGKILL and waits until it has ended.
    pub(super) fn kill(&mut self) {
        self.0.kill().expect("a child can be killed");
        let status = self.0.wait().expect("a child can be waited for");
        assert!(died(status), "the shop ended by itself: {status}");
    }

    /// Stops the shop, and waits until it has settled all deliveries and ended.
    pub(super) async fn stop(mut self) {
        let id = self.0.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status();
        assert!(
            asked.is_ok_and(|status| status.success()),
            "the shop cannot be asked to stop"
        );
        let patience = Patience::within(PATIENCE);
        let status = loop {
            if let Some(status) = self.ended() {
                break status;
            }
            patience.pause().await;
        };
        assert!(
            status.success(),
            "the shop did not stop in good order: {status}"
        );
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        // The process may have ended already, so errors are ignored.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the process was ended by SIGKILL.
pub(super) fn died(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}
