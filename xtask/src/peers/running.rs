//! Programs with a time limit, which end with this process.
//!
//! The output of a program goes to a file. If the program fails, the error contains the line of the
//! output that names the cause. When the value is dropped, the program and its children are killed.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use crate::{guard::guarded, step::clear_cargo_variables};

/// How often a program is checked.
const PAUSE: Duration = Duration::from_millis(20);

/// A program that was started here.
#[derive(Debug)]
pub(super) struct Running {
    name: String,
    process: Child,
    output: PathBuf,
}

/// A command that is killed with its children when this process ends.
pub(super) fn command(program: &str) -> Command {
    let mut command = guarded(program, "KILL");
    clear_cargo_variables(&mut command);
    command
}

/// Runs a [`command`] to its end, and returns its output. `name` is for errors.
pub(super) fn succeed(
    name: &str,
    command: Command,
    output: &Path,
    limit: Duration,
) -> anyhow::Result<String> {
    let mut running = Running::start(name, command, output)?;
    let status = running.wait(limit)?;
    if !status.success() {
        return Err(running.failed(status));
    }
    let text = fs::read_to_string(output);
    text.with_context(|| format!("cannot read the output of {name}"))
}

impl Running {
    /// Starts a [`command`], whose output goes to a file.
    pub(super) fn start(name: &str, mut command: Command, output: &Path) -> anyhow::Result<Self> {
        let file = File::create(output);
        let file = file.with_context(|| format!("cannot write {}", output.display()))?;
        let process = command
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            process,
            output: output.to_owned(),
        })
    }

    /// Waits until the program has ended, and returns its status.
    pub(super) fn wait(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        let began = Instant::now();
        loop {
            // Not `wait`, which would close the standard input and so kill the program.
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            if began.elapsed() > limit {
                bail!("{} did not end within {} s", self.name, limit.as_secs());
            }
            pause();
        }
    }

    /// Waits until `is_ready` returns true.
    pub(super) fn ready(
        &mut self,
        limit: Duration,
        is_ready: impl Fn() -> bool,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        while !is_ready() {
            if let Some(status) = self.process.try_wait()? {
                return Err(self.failed(status));
            }
            if began.elapsed() > limit {
                bail!("{} did not listen within {} s", self.name, limit.as_secs());
            }
            pause();
        }
        Ok(())
    }

    /// The error for a program that ended with this status.
    pub(super) fn failed(&self, status: ExitStatus) -> anyhow::Error {
        let output = fs::read(&self.output).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        let cause = first_error(&output);
        anyhow::anyhow!("{} ended with {status}: {cause}", self.name)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ended = self.process.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "the program signals nothing")]
fn pause() {
    std::thread::sleep(PAUSE);
}

/// The first line of an output that names an error, or else its first line.
fn first_error(output: &str) -> &str {
    let mut lines = output.lines().map(str::trim).filter(|it| !it.is_empty());
    let first = lines.clone().next();
    let error = lines.find(|line| line.to_ascii_lowercase().contains("error"));
    error.or(first).unwrap_or("no output")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("peers-{name}-{}", std::process::id()))
    }

    fn shell(script: &str) -> Command {
        let mut command = command("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_first_line_that_names_an_error_is_the_cause() {
        #[track_caller]
        fn check(output: &str, expected: &str) {
            assert_eq!(first_error(output), expected);
        }
        check(
            "WARNING: old\nERROR: no matching version\nhint",
            "ERROR: no matching version",
        );
        check(
            "Traceback (most recent call last):\n  File \"app.py\"\nModuleNotFoundError: redis\n",
            "ModuleNotFoundError: redis",
        );
        check("\n sh: npm: not found\n", "sh: npm: not found");
        check("", "no output");
    }

    #[test]
    fn a_program_that_fails_is_named_with_the_cause() {
        let file = output("fails");
        let limit = Duration::from_mins(1);
        let failing = shell("echo begun; echo Error: no disk >&2; exit 3");
        let error = succeed("the installer", failing, &file, limit).unwrap_err();
        fs::remove_file(&file).unwrap();
        assert_eq!(
            error.to_string(),
            "the installer ended with exit status: 3: Error: no disk"
        );
    }

    #[test]
    fn the_output_of_a_program_is_returned() {
        let file = output("succeeds");
        let limit = Duration::from_mins(1);
        let text = succeed("echo", shell("echo one; echo two"), &file, limit).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(text, "one\ntwo\n");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let file = output("hangs");
        let hanging = shell("exec sleep 3600");
        let began = Instant::now();
        let error = succeed("the app", hanging, &file, Duration::ZERO).unwrap_err();
        fs::remove_file(&file).unwrap();
        assert_eq!(error.to_string(), "the app did not end within 0 s");
        assert!(began.elapsed() < Duration::from_mins(1));
    }
}
