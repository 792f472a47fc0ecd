//! Starts a service in another language as a separate process.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use hapax_testkit::port::free_port;

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
    child: Child,
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
            child: spawn(language, &database, name, port),
            database,
        }
    }

    /// Kills the service with SIGKILL, and starts it again on the same port.
    pub(crate) fn kill_and_restart(&mut self) {
        self.kill();
        self.child = spawn(self.language, &self.database, &self.name, self.port);
    }

    /// Kills the service with SIGKILL, and waits until it has exited.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs a script in the source folder of a service, and returns its output.
#[track_caller]
pub(crate) fn say(language: Language, script: &str) -> String {
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../sql-contract");
    let mut command = match language {
        Language::Python => {
            let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
            let mut command = Command::new("python3");
            command
                .args(["-c", script])
                .current_dir(sources)
                .env("PYTHONPATH", installed(&packages.join("python")))
                .env("PYTHONDONTWRITEBYTECODE", "1");
            command
        }
        Language::Node => {
            let mut command = Command::new("node");
            command
                .args(["--input-type=module", "--eval", script])
                .current_dir(installed(&packages.join("node")));
            command
        }
    };
    let ran = command.output().expect("the script can be started");
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).expect("the output is UTF-8")
}

fn spawn(language: Language, database: &str, name: &str, port: u16) -> Child {
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../sql-contract");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = match language {
        Language::Python => {
            let mut command = Command::new("python3");
            command
                .args(["-m", "uvicorn", "app:app", "--no-access-log", "--port"])
                .arg(port.to_string())
                .current_dir(sources.join("python"))
                .env("PYTHONPATH", installed(&packages.join("python")))
                .env("PYTHONDONTWRITEBYTECODE", "1");
            command
        }
        Language::Node => {
            let mut command = Command::new("node");
            command
                .arg("app.js")
                .current_dir(installed(&packages.join("node")))
                .env("PORT", port.to_string());
            command
        }
    };
    let log = log(language, name);
    command
        .env("DATABASE_URL", database)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file handle can be cloned"))
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}

fn installed(packages: &Path) -> PathBuf {
    let there = packages.join("installed").exists();
    assert!(
        there,
        "the packages of the examples are not installed: run `cargo x contract` once"
    );
    packages.canonicalize().expect("the folder exists")
}

/// Opens the log of the service, which is kept for the analysis of failed tests.
fn log(language: Language, name: &str) -> File {
    let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sql-contract");
    std::fs::create_dir_all(&logs).expect("the log folder can be created");
    let file = format!("{language:?}-{}-{name}.log", std::process::id());
    File::options()
        .create(true)
        .append(true)
        .open(logs.join(file))
        .expect("the log can be opened")
}
