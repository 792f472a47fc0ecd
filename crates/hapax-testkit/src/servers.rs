//! Private brokers that a test may break: real programs with a separate port and directory.
//!
//! A server ends when its value is dropped, and also when the test process dies.

use std::{fs, net::TcpStream, path::Path, time::Duration};

use tempfile::TempDir;

use crate::{
    port::free_port,
    program::{Program, guarded},
    wait::Patience,
};

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that runs or was killed.
#[derive(Debug)]
pub struct Server {
    name: &'static str,
    arguments: Vec<String>,
    directory: TempDir,
    port: u16,
    program: Option<Program>,
}

impl Server {
    /// Starts a NATS server with these lines in its configuration, in which `STORE` stands for a
    /// private directory.
    ///
    /// # Panics
    /// Panics if it is not installed or does not start.
    pub async fn nats(lines: &str) -> Self {
        Self::start("nats-server", |port, directory| {
            let store = directory.join("store");
            let file = directory.join("nats.conf");
            let text = lines.replace("STORE", &store.display().to_string());
            let text = format!("listen: 127.0.0.1:{port}\n{text}\n");
            fs::write(&file, text).expect("the configuration can be written");
            vec!["--config".to_owned(), file.display().to_string()]
        })
        .await
    }

    /// Starts a Redis server with these arguments.
    ///
    /// # Panics
    /// Panics if it is not installed or does not start.
    pub async fn redis(arguments: &[&str]) -> Self {
        Self::start("redis-server", |port, directory| {
            let (port, directory) = (port.to_string(), directory.display().to_string());
            let own = ["--port", &port, "--bind", "127.0.0.1", "--save", ""];
            let own = own.into_iter().chain(["--dir", &directory]);
            own.chain(arguments.iter().copied())
                .map(str::to_owned)
                .collect()
        })
        .await
    }

    /// Starts moto, a stand-in for S3, SQS and SNS, whose packages are in this folder. It keeps
    /// everything in memory, so nothing is left after a [`kill`](Self::kill).
    ///
    /// # Panics
    /// Panics if it does not start.
    pub async fn moto(packages: &Path) -> Self {
        Self::start("env", |port, _| {
            let packages = format!("PYTHONPATH={}", packages.display());
            let port = port.to_string();
            let program = [packages.as_str(), "python3", "-m", "moto.server"];
            let place = ["--host", "127.0.0.1", "--port", port.as_str()];
            [program, place]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect()
        })
        .await
    }

    /// Starts drongo, a stand-in for Google Cloud Pub/Sub, whose packages are in this folder. It keeps
    /// everything in memory, so nothing is left after a [`kill`](Self::kill).
    ///
    /// # Panics
    /// Panics if it does not start.
    pub async fn drongo(packages: &Path) -> Self {
        Self::start("env", |port, _| {
            let packages = format!("PYTHONPATH={}", packages.display());
            let port = port.to_string();
            let program = [packages.as_str(), "python3", "-m", "drongo.cli", "server"];
            let place = ["--host", "127.0.0.1", "--port", port.as_str()];
            let arguments = program.into_iter().chain(place);
            arguments.map(str::to_owned).collect()
        })
        .await
    }

    /// The address, as `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills the server with SIGKILL. Returns when it is dead.
    pub fn kill(&mut self) {
        self.program = None;
    }

    /// Starts the server again at the same address with its data.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub async fn start_again(&mut self) {
        let mut command = guarded(self.name, "KILL");
        command.args(&self.arguments);
        let mut program = Program::start(command, &self.directory.path().join("log"));
        let address = self.address();
        let patience = Patience::within(PATIENCE);
        while TcpStream::connect(&address).is_err() {
            assert!(!program.has_ended(), "server ended: {}", program.log());
            patience.pause().await;
        }
        self.program = Some(program);
    }

    async fn start(name: &'static str, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be created");
        let port = free_port();
        let mut server = Self {
            name,
            arguments: arguments(port, directory.path()),
            directory,
            port,
            program: None,
        };
        server.start_again().await;
        server
    }
}
