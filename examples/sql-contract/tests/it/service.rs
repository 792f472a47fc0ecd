//! Starts a service in another language as a separate process.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hapax_testkit::{
    port::free_port,
    program::{Program, packages},
};

/// The languages of the examples.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    Python,
    Node,
}

/// A process of the service; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Service {
    language: Language,
    /// The application name of the service's database sessions.
    pub(crate) name: String,
    pub(crate) url: String,
    port: u16,
    database: String,
    program: Program,
}

impl Service {
    /// Starts the service on a free port; `name` is the application name of its sessions.
    pub(crate) fn start(language: Language, database: &str, name: &str) -> Self {
        let port = free_port();
        let database = format!("{database}?application_name={name}");
        Self {
            language,
            name: name.to_owned(),
            url: format!("http://127.0.0.1:{port}"),
            port,
            program: start(language, &database, name, port),
            database,
        }
    }

    /// Kills the service with SIGKILL, and starts it again on the same port.
    pub(crate) fn kill_and_restart(&mut self) {
        self.kill();
        self.program = start(self.language, &self.database, &self.name, self.port);
    }

    /// Kills the service with SIGKILL, and waits until it has exited.
    pub(crate) fn kill(&mut self) {
        self.program.kill();
    }
}

/// Runs a script in the source folder of a service, and returns its output.
#[track_caller]
pub(crate) fn say(language: Language, script: &str) -> String {
    let mut command = match language {
        Language::Python => python(&["-c", script]),
        Language::Node => node(&["--input-type=module", "--eval", script]),
    };
    let ran = command.output().expect("the script can be started");
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).expect("the output is UTF-8")
}

fn start(language: Language, database: &str, name: &str, port: u16) -> Program {
    let port = port.to_string();
    let mut command = match language {
        Language::Python => python(&[
            "-m",
            "uvicorn",
            "app:app",
            "--no-access-log",
            "--port",
            &port,
        ]),
        Language::Node => node(&["app.js"]),
    };
    command
        .env("PORT", &port)
        .env("DATABASE_URL", database)
        .stdin(Stdio::null());
    Program::start(command, &log(language, name))
}

fn python(arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("python"))
        .env("PYTHONPATH", installed("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn node(arguments: &[&str]) -> Command {
    let mut command = Command::new("node");
    command.args(arguments).current_dir(installed("node"));
    command
}

fn installed(language: &str) -> PathBuf {
    packages(
        env!("CARGO_TARGET_TMPDIR"),
        &format!("sql-contract/{language}"),
    )
}

/// The log of the service, which is kept for the analysis of failed tests.
fn log(language: Language, name: &str) -> PathBuf {
    let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sql-contract");
    fs::create_dir_all(&logs).expect("the log folder can be created");
    logs.join(format!("{language:?}-{}-{name}.log", std::process::id()))
}
