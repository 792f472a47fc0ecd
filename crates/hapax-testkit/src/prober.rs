//! API prober: tests an HTTP API against its `OpenAPI` description with schemathesis.
//!
//! It finds internal errors, responses that are not described, and requests that the description
//! forbids and the server accepts. It does not check whether the server accepts everything that a
//! schema allows, because a schema does not say that a destination must exist. The requests are the
//! same in every run.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{process::Command, time::timeout};

/// The time limit of a run. Alone on two cores a run takes about fifteen seconds.
const PROBE_MAX: Duration = Duration::from_mins(5);
/// The checks that are left out, as described above.
const LEFT_OUT: &str = "positive_data_acceptance";

/// A run against one API.
#[derive(Debug)]
pub struct Prober {
    packages: PathBuf,
    folder: tempfile::TempDir,
    description: String,
    arguments: Vec<String>,
}

impl Prober {
    /// Tests the API that is described at this URL, with five requests of each kind per operation.
    ///
    /// `target_tmp` is the test's `env!("CARGO_TARGET_TMPDIR")`; the packages are next to it.
    ///
    /// # Panics
    /// Panics if the packages are not installed.
    pub fn of(target_tmp: &str, description: &str) -> Self {
        let packages = Path::new(target_tmp).join("../prober");
        assert!(
            packages.join("schemathesis").is_dir(),
            "schemathesis is not installed: `cargo x test` installs it, and so does python3 -m pip install --target \
             target/prober --requirement crates/hapax-testkit/prober/requirements.txt"
        );
        let folder = tempfile::tempdir().expect("a directory for the settings can be created");
        Self {
            packages,
            folder,
            description: description.to_owned(),
            arguments: Vec::new(),
        }
    }

    /// Sends a header with every request.
    #[must_use]
    pub fn header(self, name: &str, value: &str) -> Self {
        self.argument("--header")
            .argument(&format!("{name}: {value}"))
    }

    /// Adds a command-line argument.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Runs to the end, and fails with the findings.
    ///
    /// `settings` is the text of a `schemathesis.toml`, for example with the names of existing
    /// objects.
    ///
    /// # Panics
    /// Panics if there are findings, if it cannot be run, or if it takes too long.
    pub async fn finds_nothing(self, settings: &str) {
        let file = self.folder.path().join("schemathesis.toml");
        std::fs::write(&file, settings).expect("the settings can be written");
        let mut python = Command::new("python3");
        python
            .args(["-m", "schemathesis.cli", "--config-file"])
            .arg(&file)
            .args(["run", &self.description, "--no-color", "--warnings", "off"])
            .args(["--generation-deterministic", "--max-examples", "5"])
            .args(["--suppress-health-check", "all", "--continue-on-failure"])
            .args(["--exclude-checks", LEFT_OUT])
            .args(&self.arguments)
            .current_dir(self.folder.path())
            .env("PYTHONPATH", &self.packages)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let ran = timeout(PROBE_MAX, python.output()).await;
        let ran = ran
            .expect("the run ends in time")
            .expect("python3 can be run");
        let said = String::from_utf8_lossy(&ran.stdout);
        let failed = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{said}{failed}");
        assert!(
            said.contains("No issues found"),
            "schemathesis has sent no requests: {said}{failed}"
        );
    }
}
