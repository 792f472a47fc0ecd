//! Fixture: `hapax relay` as a separate process beside the shop, from the same build.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use hapax_testkit::wait::eventually;
use tempfile::TempDir;

use crate::shop::PATIENCE;

/// A running relay. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Carrier {
    child: Child,
    folder: TempDir,
    /// The base URL of its metrics and health checks.
    pub(crate) url: String,
}

/// The command of the binary with these arguments, in an empty environment, not started.
pub(crate) fn hapax(arguments: &[&str]) -> Command {
    let path = Path::new(env!("CARGO_BIN_EXE_shop")).with_file_name("hapax");
    assert!(
        path.exists(),
        "the relay is not built: run `cargo build --package hapax-server` once"
    );
    let mut command = Command::new(path);
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

impl Carrier {
    /// Starts a relay with this configuration, and waits until it delivers.
    pub(crate) async fn start(database: &str, configuration: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        fs::write(file("hapax.toml"), configuration).unwrap();
        let mut command = hapax(&["relay", "--listen", "127.0.0.1:0", "--log", "json"]);
        let child = command
            .args(["--database", database, "--config"])
            .arg(file("hapax.toml"))
            .args(arguments)
            .stdout(File::create(file("out")).unwrap())
            .stderr(File::create(file("log")).unwrap())
            .spawn()
            .unwrap();
        let mut carrier = Self {
            child,
            folder,
            url: String::new(),
        };
        eventually(PATIENCE, async || {
            let ended = carrier.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?} {}", carrier.said());
            carrier.url = carrier.listens().unwrap_or_default();
            !carrier.url.is_empty()
        })
        .await;
        carrier
    }

    /// The output of the relay so far.
    pub(crate) fn said(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.path().join(name)).unwrap();
        format!("{}{}", read("out"), read("log"))
    }

    /// Stops the relay as an operator would.
    pub(crate) async fn stop(mut self) -> String {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &id]).status();
        assert!(sent.unwrap().success());
        let mut status = None;
        eventually(PATIENCE, async || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        assert!(status.unwrap().success(), "{}", self.said());
        self.said()
    }

    fn listens(&self) -> Option<String> {
        let log: PathBuf = self.folder.path().join("log");
        let log = fs::read_to_string(log).unwrap();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut lines =
            lines.filter(|line: &serde_json::Value| line["fields"]["message"] == "relay started");
        let address = lines.next()?["fields"]["listen"].as_str()?.to_owned();
        Some(format!("http://{address}"))
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
