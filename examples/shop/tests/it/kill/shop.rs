//! The shop as its users run it: a process with a folder that outlives it.
//!
//! It listens on one port for all its lives, below the range that the system
//! hands out by itself: a client that knocks while the shop is dead must not
//! be given the shop's own port. Whatever becomes of a test, no shop stays.

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

/// What the shop signs its webhooks with.
pub(super) const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// What the provider signs the messages with that the shop consumes.
pub(super) const INBOX_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// The longest that a start or a stop may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// The attempts of a webhook: a crash spends one, and an event must survive all of them.
const ATTEMPTS: usize = 60;

/// Where an instance of a shop lives.
#[derive(Debug)]
pub(super) struct Home {
    folder: Option<TempDir>,
    pub(super) address: SocketAddr,
    webhook: String,
    /// The database that it shares with others; a file in its folder where there is none.
    database: Option<String>,
    /// The flags that name the providers outside the shop.
    providers: Vec<String>,
}

impl Home {
    /// An empty folder and a free port; `webhook` gets every event, `providers` every call.
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

    /// Starts a shop; `failpoint` is where it is to die, as `name:nth`.
    pub(super) fn start(&self, failpoint: Option<&str>) -> Shop {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder().join("shop.log"));
        let log = log.expect("the log can be opened");
        // Every death may spend an attempt at whatever is on its way: of a webhook, and of a mail.
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

    /// Keeps the folder for whoever looks into a failure.
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
    /// Waits until the shop takes requests.
    ///
    /// # Panics
    /// When it ends instead, or takes too long.
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

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("a child can be asked for")
    }

    /// Kills it with SIGKILL; when it returns, the process is gone.
    pub(super) fn kill(&mut self) {
        self.0.kill().expect("a child can be killed");
        let status = self.0.wait().expect("a child can be waited for");
        assert!(died(status), "the shop ended by itself: {status}");
    }

    /// Asks it to stop, and waits until it has settled everything and left.
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
        // It may have ended already; then there is nothing to kill and nothing to say.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process was ended by SIGKILL.
pub(super) fn died(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}
