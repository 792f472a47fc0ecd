//! Fixture: the service of the gateway, as a process, with its ledger.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hapax_testkit::{
    port::free_port,
    program::{Program, packages},
    wait::{answered, eventually},
};
use serde_json::Value;
use tempfile::TempDir;

use crate::wire::{Answer, Connection, PATIENCE};

/// A program that is a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `server.py`, which has all faults.
    Python,
    /// `server.mjs` with HTTP/1.1.
    Node,
    /// `server.mjs` with HTTP/2.
    NodeHttp2,
}

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// The hash of the answer.
    pub(crate) answer: String,
    /// The body of the answer.
    pub(crate) text: String,
}

/// A running service, or one that was killed. Its port and its ledger stay the same.
#[derive(Debug)]
pub(crate) struct Upstream {
    kind: Kind,
    port: u16,
    folder: TempDir,
    program: Program,
}

impl Upstream {
    pub(crate) fn start(kind: Kind) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let program = started(kind, port, folder.path());
        Self {
            kind,
            port,
            folder,
            program,
        }
    }

    pub(crate) fn python() -> Self {
        Self::start(Kind::Python)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.program.has_ended()
    }

    /// Kills it with SIGKILL, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.program.kill();
        self.program = started(self.kind, self.port, self.folder.path());
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.program.kill();
    }

    pub(crate) fn signal(&self, name: &str) {
        self.program.signal(name);
    }

    /// The lines of the ledger.
    pub(crate) fn ledger(&self) -> Vec<Entry> {
        let text = fs::read_to_string(ledger(self.folder.path())).unwrap_or_default();
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        complete.lines().map(entry).collect()
    }

    /// The lines with this key.
    pub(crate) fn lines_of(&self, key: &str) -> Vec<Entry> {
        let mut lines = self.ledger();
        lines.retain(|line| line.key == key);
        lines
    }

    /// The faults that requests have switched on in `server.py`, and how often.
    pub(crate) fn faults(&self) -> BTreeMap<String, usize> {
        let path = ledger(self.folder.path()).with_extension("faults");
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut faults = BTreeMap::new();
        for name in text.lines() {
            *faults.entry(name.to_owned()).or_default() += 1;
        }
        faults
    }

    /// The requests that `server.py` has read since it started or was asked to forget them.
    pub(crate) async fn seen(&self) -> Vec<Value> {
        let answer = self.ask("GET", "/_seen").await;
        answer.json().as_array().cloned().unwrap_or_default()
    }

    /// Sends a request to `server.py` directly.
    pub(crate) async fn ask(&self, method: &str, path: &str) -> Answer {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        let asked = async {
            let mut connection = Connection::open(self.address()).await?;
            connection.send(request.as_bytes()).await?;
            connection.answer().await
        };
        answered(PATIENCE, asked).await.unwrap()
    }
}

/// A running service of other people's packages.
pub(crate) struct Packaged {
    pub(crate) address: SocketAddr,
    /// Its working directory.
    pub(crate) folder: TempDir,
    #[expect(dead_code, reason = "it is held")]
    program: Program,
}

impl Packaged {
    /// Starts a script with a port and further arguments.
    pub(crate) async fn start(path: &str, arguments: &[&str]) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut server = python(path);
        server.arg(port.to_string()).args(arguments);
        server.stdin(Stdio::null()).current_dir(folder.path());
        let mut program = Program::start(server, &folder.path().join("log"));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        eventually(PATIENCE, async || {
            assert!(!program.has_ended(), "{}", program.log());
            Connection::open(address).await.is_ok()
        })
        .await;
        Self {
            address,
            folder,
            program,
        }
    }
}

/// A script with the packages of the tests.
pub(crate) fn python(path: &str) -> Command {
    let mut python = Command::new("python3");
    let packages = packages(env!("CARGO_TARGET_TMPDIR"), "gateway");
    python.env("PYTHONPATH", packages);
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python.arg(script(path));
    python
}

fn started(kind: Kind, port: u16, folder: &Path) -> Program {
    let mut command = match kind {
        Kind::Python => {
            let mut python = Command::new("python3");
            python.arg(script("upstream/server.py"));
            python.env("PYTHONDONTWRITEBYTECODE", "1");
            python
        }
        Kind::Node | Kind::NodeHttp2 => {
            let mut node = Command::new("node");
            node.arg(script("upstream/server.mjs"));
            if kind == Kind::NodeHttp2 {
                node.arg("--http2");
            }
            node
        }
    };
    command.arg("--ledger").arg(ledger(folder));
    command.args(["--port", &port.to_string()]);
    command.stdin(Stdio::null());
    let (program, line) = Program::announced(command, &folder.join("log"));
    let expected = format!("listening {port}");
    assert_eq!(line, expected, "{kind:?}: {}", program.log());
    program
}

/// A file of this package.
pub(crate) fn script(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn ledger(folder: &Path) -> PathBuf {
    folder.join("ledger")
}

fn entry(line: &str) -> Entry {
    let line: Value = serde_json::from_str(line).unwrap();
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    Entry {
        key: text("key"),
        answer: text("answer"),
        text: text("text"),
    }
}
