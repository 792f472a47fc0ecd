//! Shell commands of a plan: how effects are counted, and how the server is restarted.
//!
//! A command has a separate process group, a time limit, and a bound of what it may print. If it is
//! not finished in time, or is not waited for any more, its whole group is killed. What it leaves
//! running when it ends in time goes on: a restarted server is such a process.

use std::{
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, Command},
    time::{Instant, timeout_at},
};

/// The maximum number of bytes that a command may print.
const OUTPUT_MAX: usize = 4 * 1024;

/// Why a command was not successful. The command itself is not repeated: it can contain a secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShellError {
    #[error("could not be run: {0}")]
    Io(#[from] io::Error),
    #[error("took longer than {0:?}")]
    Timeout(Duration),
    #[error("printed more than {} bytes", OUTPUT_MAX)]
    Output,
    #[error("ended with {0}")]
    Status(ExitStatus),
}

/// Runs a command, which has to be successful. What it prints is dropped.
pub(crate) async fn succeeds(command: &str, limit: Duration) -> Result<(), ShellError> {
    run(command, limit, Stdio::null()).await.map(drop)
}

/// Runs a command, which has to be successful, and returns what it printed.
pub(crate) async fn prints(command: &str, limit: Duration) -> Result<String, ShellError> {
    let output = run(command, limit, Stdio::piped()).await?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

async fn run(command: &str, limit: Duration, stdout: Stdio) -> Result<Vec<u8>, ShellError> {
    let end = Instant::now() + limit;
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let mut group = Group(
        child
            .id()
            .and_then(|it| i32::try_from(it).ok())
            .and_then(Pid::from_raw),
    );
    let output = timeout_at(end, output(&mut child)).await;
    let output = output.unwrap_or(Err(ShellError::Timeout(limit)))?;
    let status = timeout_at(end, child.wait()).await;
    let status = status.map_err(|_| ShellError::Timeout(limit))??;
    group.0 = None;
    if status.success() {
        Ok(output)
    } else {
        Err(ShellError::Status(status))
    }
}

/// Reads what a command prints until it closes its standard output.
async fn output(child: &mut Child) -> Result<Vec<u8>, ShellError> {
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let more = OUTPUT_MAX as u64 + 1;
        stdout.take(more).read_to_end(&mut output).await?;
    }
    if output.len() > OUTPUT_MAX {
        return Err(ShellError::Output);
    }
    Ok(output)
}

/// The processes of a command, which are killed unless the command has ended.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // A group that has ended in the meantime cannot be killed.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use tokio::{task::yield_now, time::timeout};

    use super::*;

    /// Returns a command that starts a child, which runs for a long time, and writes its id to a file.
    fn with_a_child(folder: &Path) -> String {
        format!("sleep 600 & echo $! > '{}/child'", folder.display())
    }

    /// Returns the id of the child.
    fn child(folder: &Path) -> String {
        let text = fs::read_to_string(folder.join("child")).expect("the child was started");
        text.trim().to_owned()
    }

    /// Whether a process runs. One that has ended and was not waited for does not.
    fn runs(id: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .is_some_and(|it| !it.is_empty() && !it.starts_with(" Z"))
    }

    async fn ends(id: &str) {
        let end = async {
            while runs(id) {
                yield_now().await;
            }
        };
        timeout(Duration::from_secs(20), end)
            .await
            .expect("the child ends");
    }

    #[tokio::test]
    async fn a_command_that_outlives_its_time_limit_is_killed_with_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let command = format!("{}; sleep 600", with_a_child(folder.path()));
        let error = succeeds(&command, Duration::from_secs(1)).await;
        assert!(matches!(error, Err(ShellError::Timeout(_))), "{error:?}");
        ends(&child(folder.path())).await;
    }

    #[tokio::test]
    async fn a_command_that_is_not_waited_for_is_killed_with_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let command = format!("{}; sleep 600", with_a_child(folder.path()));
        let run = prints(&command, Duration::from_mins(1));
        assert!(timeout(Duration::from_secs(1), run).await.is_err());
        ends(&child(folder.path())).await;
    }

    #[tokio::test]
    async fn what_a_command_leaves_running_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let command = format!("{} 2>&1", with_a_child(folder.path()));
        succeeds(&command, Duration::from_secs(30))
            .await
            .expect("the command ends");
        let id = child(folder.path());
        assert!(runs(&id));
        let killed = std::process::Command::new("kill")
            .args(["-9", &id])
            .status();
        assert!(killed.expect("kill runs").success());
        ends(&id).await;
    }

    #[tokio::test]
    async fn what_a_command_prints_has_a_bound() {
        let limit = Duration::from_secs(30);
        let text = prints("echo 42; echo secret >&2", limit).await;
        assert_eq!(text.expect("the command ends"), "42\n");
        let error = prints("yes", limit).await;
        assert!(matches!(error, Err(ShellError::Output)), "{error:?}");
        let error = prints("TOKEN=hunter2 false", limit).await;
        let error = error.expect_err("the command fails").to_string();
        assert_eq!(error, "ended with exit status: 1");
    }
}
