//! Private servers that a test may break: real programs with a separate port and directory.
//!
//! A server ends when its value is dropped, and also when the test process dies.

use std::{
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use hapax_testkit::{port::free_port, wait::eventually};
use tempfile::TempDir;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Kills the server when this process closes its input, even if the test is killed.
const GUARD: &str =
    "( { read -r _; kill -KILL $$; } <&3 3<&- & ) 3<&0; exec \"$0\" \"$@\" </dev/null 3<&-";

/// A server that runs or was killed.
pub(crate) struct Server {
    program: &'static str,
    arguments: Vec<String>,
    directory: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Server {
    /// Starts a NATS server with JetStream and these lines in its configuration.
    pub(crate) async fn nats(lines: &str) -> Self {
        Self::start("nats-server", |port, directory| {
            let store = directory.join("store");
            let file = directory.join("nats.conf");
            let text = lines.replace("STORE", &store.display().to_string());
            fs::write(&file, format!("listen: 127.0.0.1:{port}\n{text}\n")).unwrap();
            vec!["--config".to_owned(), file.display().to_string()]
        })
        .await
    }

    /// Starts a Redis server with these arguments.
    pub(crate) async fn redis(arguments: &[&str]) -> Self {
        Self::start("redis-server", |port, directory| {
            let (port, directory) = (port.to_string(), directory.display().to_string());
            let own = [
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--dir",
                &directory,
                "--save",
                "",
            ];
            own.iter()
                .chain(arguments)
                .map(|&it| it.to_owned())
                .collect()
        })
        .await
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills the server with SIGKILL. Returns when it is dead.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts the server again at the same address with its data.
    pub(crate) async fn start_again(&mut self) {
        let mut command = Command::new("sh");
        command
            .args(["-c", GUARD, self.program])
            .args(&self.arguments);
        let log = fs::File::create(self.directory.path().join("log")).unwrap();
        command.stdin(Stdio::piped());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        let (address, log) = (self.address(), self.directory.path().join("log"));
        let child = &mut self.child;
        eventually(PATIENCE, async || {
            let ended = child.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "server ended: {}", read(&log));
            TcpStream::connect(&address).is_ok()
        })
        .await;
    }

    async fn start(program: &'static str, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Self {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output();
        assert!(
            found.unwrap().status.success(),
            "{program} is missing: install it"
        );
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut server = Self {
            program,
            arguments: arguments(port, directory.path()),
            directory,
            port,
            child: None,
        };
        server.start_again().await;
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read(log: &PathBuf) -> String {
    fs::read_to_string(log).unwrap_or_default()
}
