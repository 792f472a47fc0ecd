//! A service as a separate process.

use std::{
    fs,
    path::{Path, PathBuf},
};

use hapax_testkit::{port::free_port, program::Program};

use crate::kind::Kind;

/// A process of a service; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Service {
    kind: Kind,
    /// The application name of the service's database sessions.
    pub(crate) name: String,
    pub(crate) url: String,
    port: u16,
    database: String,
    program: Program,
}

impl Service {
    /// Starts the service on a free port; `name` is the application name of its sessions.
    pub(crate) fn start(kind: Kind, database: &str, name: &str) -> Self {
        let port = free_port();
        let separator = if database.contains('?') { '&' } else { '?' };
        let database = format!("{database}{separator}application_name={name}");
        Self {
            kind,
            name: name.to_owned(),
            url: format!("http://127.0.0.1:{port}"),
            port,
            program: start(kind, &database, name, port),
            database,
        }
    }

    /// Kills the service with SIGKILL, and waits until it has exited.
    pub(crate) fn kill(&mut self) {
        self.program.kill();
    }

    /// Starts a service that was killed on the same port.
    pub(crate) fn start_again(&mut self) {
        self.program = start(self.kind, &self.database, &self.name, self.port);
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.program.has_ended()
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        self.program.log()
    }
}

fn start(kind: Kind, database: &str, name: &str, port: u16) -> Program {
    Program::start(kind.command(database, port), &log(kind, name))
}

/// The log of the service, which is kept for the analysis of failed tests.
fn log(kind: Kind, name: &str) -> PathBuf {
    let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdk-suite");
    fs::create_dir_all(&logs).expect("the log folder can be created");
    let Kind {
        framework, driver, ..
    } = kind;
    let process = std::process::id();
    logs.join(format!("{framework}-{driver}-{process}-{name}.log"))
}
