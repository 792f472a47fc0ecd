//! Child processes of the harness, which are killed when they are dropped, with their own children.
//!
//! The output of a process is written to a file. If the process fails, the error contains the end
//! of that file.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tokio::time::{sleep, timeout};

use crate::{
    load::{Connection, Request},
    status::mebibytes,
};

/// Time limit for a service to become ready.
const READY: Duration = Duration::from_secs(20);
/// Poll interval while a process starts or ends.
const LOOK: Duration = Duration::from_millis(1);

/// A child process.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts the process, with stdout and stderr in the file `log`.
    pub(super) fn start(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let said = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            .process_group(0);
        let child = command.spawn();
        let program = command.get_program().display();
        let child = child.with_context(|| format!("cannot start {program}"))?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// Waits until the process ends, and returns its output.
    pub(super) async fn ended(mut self) -> anyhow::Result<String> {
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(fs::read_to_string(&self.log)?),
                Some(status) => bail!(self.error_chain(status)),
                None => sleep(LOOK).await,
            }
        }
    }

    /// Sends SIGTERM, waits until the process ends, and returns its output.
    pub(super) async fn told_to_end(self) -> anyhow::Result<String> {
        let id = self.child.id().to_string();
        let outcome = Command::new("kill").args(["-TERM", &id]).status()?;
        if !outcome.success() {
            bail!("kill ended with {outcome}");
        }
        self.ended().await
    }

    fn error_chain(&self, status: ExitStatus) -> String {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = said.lines().rev().take(5).collect();
        let end = lines.into_iter().rev().collect::<Vec<_>>().join("\n  ");
        format!("ended with {status}, last output:\n  {end}")
    }

    /// A figure of `/proc/PID/status`, in mebibytes.
    fn memory(&self, field: &str) -> anyhow::Result<f64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).context("the process has ended")?;
        mebibytes(&status, field)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The workers of a server such as nginx stay if only the process that started them is killed. The
        // group of a process that has ended may belong to another one.
        if matches!(self.child.try_wait(), Ok(None)) {
            let group = format!("-{}", self.child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A service that is ready.
#[derive(Debug)]
pub(super) struct Service {
    running: Running,
    /// The address on which the service listens.
    pub(super) address: SocketAddr,
    /// The time from its start until it was ready.
    pub(super) ready_after: Duration,
}

impl Service {
    /// Starts the service on `address` and waits until it is ready.
    pub(super) async fn start(
        command: Command,
        address: SocketAddr,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let program = command.get_program().display().to_string();
        let start = Instant::now();
        let mut running = Running::start(command, log)?;
        while !timeout(READY, is_ready(address)).await.unwrap_or(false) {
            if let Some(status) = running.child.try_wait()? {
                bail!("{program} {}", running.error_chain(status));
            }
            if start.elapsed() > READY {
                bail!("{program} was not ready after {READY:?}");
            }
            sleep(LOOK).await;
        }
        Ok(Self {
            running,
            address,
            ready_after: start.elapsed(),
        })
    }

    /// The current memory of the process, in mebibytes.
    pub(super) fn resident(&self) -> anyhow::Result<f64> {
        self.running.memory("VmRSS")
    }

    /// The highest memory of the process since its start, in mebibytes.
    pub(super) fn peak(&self) -> anyhow::Result<f64> {
        self.running.memory("VmHWM")
    }
}

async fn is_ready(address: SocketAddr) -> bool {
    let Ok(mut connection) = Connection::open(address).await else {
        return false;
    };
    let asked = connection
        .exchange(Request::get("/readyz", None).bytes())
        .await;
    asked.is_ok_and(|head| head.status == 200)
}

/// An address that is free at the moment.
pub(super) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use hapax_testkit::wait::eventually;

    use super::*;

    #[test]
    fn a_figure_of_the_status_is_found_by_its_whole_name() {
        let status = "Name:\tshop\nVmHWM:\t   20480 kB\nVmRSS:\t   1024 kB\n";
        assert!((mebibytes(status, "VmRSS").unwrap() - 1.0).abs() < 1e-9);
        assert!((mebibytes(status, "VmHWM").unwrap() - 20.0).abs() < 1e-9);
        assert!(mebibytes(status, "Vm").is_err());
    }

    #[test]
    fn what_is_dropped_does_not_run_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sleep");
        command.arg("60");
        let running = Running::start(command, &folder.path().join("log")).unwrap();
        let proc = PathBuf::from(format!("/proc/{}", running.child.id()));
        assert!(proc.exists());
        drop(running);
        assert!(!proc.exists());
    }

    #[tokio::test]
    async fn the_children_of_what_is_dropped_do_not_run_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]);
        let running = Running::start(command, &log).unwrap();
        let child = || fs::read_to_string(&log).unwrap_or_default();
        eventually(READY, async || child().ends_with('\n')).await;
        let stat = format!("/proc/{}/stat", child().trim());
        assert!(runs(&stat));
        drop(running);
        // The system ends it after the signal was sent.
        eventually(READY, async || !runs(&stat)).await;
    }

    /// Whether a process exists that has not ended.
    fn runs(stat: &str) -> bool {
        fs::read_to_string(stat).is_ok_and(|it| !it.contains(") Z "))
    }

    #[tokio::test]
    async fn a_service_that_ends_before_it_is_ready_is_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such setting >&2; exit 2"]);
        let address = free_address().unwrap();
        let started = Service::start(command, address, &folder.path().join("log")).await;
        let error_chain = started.expect_err("it ended").to_string();
        assert!(
            error_chain.contains("exit status: 2") && error_chain.contains("no such setting"),
            "{error_chain}"
        );
    }
}
