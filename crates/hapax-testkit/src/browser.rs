//! Drivers of a real browser: scripts for Node that control Chromium.
//!
//! `browser/browser.mjs` starts the browser, and has what every driver needs: pages that record
//! complaints, axe-core, screenshots. A driver writes its commands to standard output, a line each, and
//! waits for a line in response. Its findings go to standard error.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};

use crate::wait::eventually;

/// How long a driver may take to end after its last command.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running driver. Dropping it kills the process, and with it the browser.
#[derive(Debug)]
pub struct Driver {
    child: Child,
    said: Option<BufReader<ChildStdout>>,
    answers: Option<ChildStdin>,
}

impl Driver {
    /// Starts the driver in the file `script`, whose screenshots go into the folder `pictures` of the
    /// build's temporary folder. `target_tmp` is the test's `env!("CARGO_TARGET_TMPDIR")`.
    ///
    /// # Panics
    /// Panics if Chromium or Node is not installed, or if the packages cannot be installed.
    pub fn start(target_tmp: &str, script: &Path, pictures: &str, arguments: &[&str]) -> Self {
        let chromium = program(&["chromium", "chromium-browser", "google-chrome"]);
        let chromium = chromium.expect("no Chromium: apt-get install chromium");
        program(&["node"]).expect("no node: apt-get install nodejs npm");
        let target_tmp = Path::new(target_tmp);
        install(&target_tmp.join("browser.lock"));
        let mut child = Command::new("node")
            .arg(script)
            .arg(chromium)
            .arg(target_tmp.join(pictures))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node starts");
        Self {
            said: child.stdout.take().map(BufReader::new),
            answers: child.stdin.take(),
            child,
        }
    }

    /// Waits for the next line of the driver's output; empty if it has ended.
    ///
    /// # Panics
    /// Panics if it is not text.
    pub async fn heard(&mut self) -> String {
        let mut said = self.said.take().expect("the output is piped");
        let reading = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            said.read_line(&mut line).expect("it is text");
            (line, said)
        });
        let (line, said) = reading.await.expect("reading does not panic");
        self.said = Some(said);
        line.trim_end().to_owned()
    }

    /// Responds to the last line.
    ///
    /// # Panics
    /// Panics if the driver has ended.
    pub fn answer(&mut self, line: &str) {
        let answers = self.answers.as_mut().expect("the input is piped");
        writeln!(answers, "{line}").expect("the driver listens");
    }

    /// Responds to the last command, `passed`, and waits until the driver has ended.
    ///
    /// # Panics
    /// Panics if it fails, or does not end.
    pub async fn ended(mut self) {
        self.answer("done");
        drop(self.answers.take());
        let mut ended: Option<ExitStatus> = None;
        eventually(PATIENCE, async || {
            ended = self.child.try_wait().expect("a child can be waited for");
            ended.is_some()
        })
        .await;
        let ended = ended.expect("the condition holds");
        assert!(ended.success(), "the browser driver ended with {ended}");
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It may have ended before.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// The path of the first of these programs that is installed.
fn program(names: &[&str]) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    let path = std::env::var("PATH").unwrap_or_default();
    names
        .iter()
        .flat_map(|name| {
            path.split(':')
                .map(move |folder| Path::new(folder).join(name))
        })
        .find(|it| it.is_file())
}

/// Installs the npm packages with the versions of the lock file. Tests that start at the same time wait
/// for each other at the file `lock`.
fn install(lock: &Path) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
    let lock = File::create(lock).expect("the folder of the build can be written to");
    lock.lock().expect("the file can be locked");
    // npm writes this file when everything is installed.
    if folder.join("node_modules/.package-lock.json").is_file() {
        return;
    }
    let ran = Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        .current_dir(&folder)
        .stdout(Stdio::null())
        .status()
        .expect("no npm: apt-get install npm");
    assert!(
        ran.success(),
        "npm ci in {} ended with {ran}",
        folder.display()
    );
}
