//! One process of a run: it is started, gets faults, and is started again under its old name.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use anyhow::{Context as _, bail};
use hapax_testkit::{machine_faults::MachineFaults, power::Disk, wait::Patience};

use super::PATIENCE;

/// Number of bytes at the end of a log that show why the process ended.
const LOG_TAIL: u64 = 600;

/// A process, and how to start it.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    binary: PathBuf,
    /// Prefix of its command line.
    wrapper: Vec<String>,
    /// The same program of another release, which does not know every argument.
    other: Option<PathBuf>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    log: PathBuf,
    machine_faults: Option<MachineFaults>,
    /// Number of writes that its full disk had refused when it was started.
    refused: u64,
    child: Option<Child>,
    /// Whether it was started with a failpoint: then it may end by itself, as may a process that
    /// cannot create its tables.
    has_failpoint: bool,
}

impl Program {
    /// A process that writes its log into `folder`; not started.
    pub(crate) fn new(name: &str, folder: &Path, binary: &Path, arguments: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            binary: binary.to_owned(),
            wrapper: Vec::new(),
            other: None,
            arguments,
            environment: Vec::new(),
            log: folder.join(format!("{name}.log")),
            machine_faults: None,
            refused: 0,
            child: None,
            has_failpoint: false,
        }
    }

    /// Another process of the same program with the same environment, under this name, with arguments
    /// that may differ; not started, and without machine faults.
    pub(crate) fn another(&self, name: &str, argument: impl Fn(&str) -> String) -> Self {
        let arguments = self.arguments.iter().map(|it| argument(it)).collect();
        let folder = self.log.parent().unwrap_or(Path::new("."));
        let mut another = Self::new(name, folder, &self.binary, arguments);
        another.wrapper.clone_from(&self.wrapper);
        another.environment.clone_from(&self.environment);
        another
    }

    /// The same program, started through a wrapper command that executes it.
    pub(super) fn behind(mut self, wrapper: &[String]) -> Self {
        wrapper.clone_into(&mut self.wrapper);
        self
    }

    /// The same, with a variable of the environment; it has few others.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same, writing by way of a disk which may lose what was not flushed.
    pub(super) fn on(mut self, disk: &Disk) -> Self {
        for (name, value) in disk.environment() {
            let value = value.to_string_lossy().into_owned();
            self.environment.push((name.to_owned(), value));
        }
        self
    }

    /// The same, with this preloaded library, which injects machine faults.
    pub(crate) fn with_machine_faults(mut self, library: &Path) -> Self {
        let file = self.log.with_extension("faults");
        self.machine_faults = Some(MachineFaults::none(library, &file));
        self
    }

    /// The machine faults of this process.
    pub(crate) fn machine_faults(&self) -> Option<&MachineFaults> {
        self.machine_faults.as_ref()
    }

    /// From the next start on it has this argument as well.
    pub(crate) fn add_argument(&mut self, argument: String) {
        self.arguments.push(argument);
    }

    /// From the next start on it does not have this argument.
    pub(super) fn remove_argument(&mut self, argument: &str) {
        self.arguments.retain(|it| it != argument);
    }

    /// There is another release of it in this folder.
    pub(super) fn has_other(&mut self, folder: &Path) -> anyhow::Result<()> {
        let name = self.binary.file_name().context("a program has a name")?;
        let other = folder.join(name);
        if !other.is_file() {
            bail!("{} does not exist", other.display());
        }
        self.other = Some(other);
        Ok(())
    }

    /// From the next start on, uses the program of the other release; false if there is none.
    pub(crate) fn change_release(&mut self) -> bool {
        self.other
            .as_mut()
            .map(|other| std::mem::swap(other, &mut self.binary))
            .is_some()
    }

    /// The path of the program.
    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        self.start_with(&[])
    }

    /// Starts it with these additional environment variables, until its next start.
    pub(crate) fn start_with(&mut self, more: &[(&str, &str)]) -> anyhow::Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        self.has_failpoint = !more.is_empty();
        self.refused = self.refused_writes();
        let log = File::options().create(true).append(true).open(&self.log)?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut command = match self.wrapper.split_first() {
            None => Command::new(&self.binary),
            Some((program, before)) => {
                let mut command = Command::new(program);
                command.args(before).arg(&self.binary);
                command
            }
        };
        command
            .args(self.known_arguments()?)
            .env_clear()
            .env("PATH", path)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(
                self.machine_faults
                    .iter()
                    .flat_map(MachineFaults::environment),
            )
            .envs(more.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let started = command.spawn();
        self.child = Some(started.with_context(|| format!("{} cannot be started", self.name))?);
        Ok(())
    }

    /// The arguments that this release knows.
    fn known_arguments(&self) -> anyhow::Result<Vec<&String>> {
        if self.other.is_none() {
            return Ok(self.arguments.iter().collect());
        }
        let command = self.arguments.iter().take_while(|it| !it.starts_with('-'));
        let outcome = Command::new(&self.binary)
            .args(command)
            .arg("--help")
            .output()?;
        let outcome = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let flag = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
        let is_known = |it: &&String| !it.starts_with("--") || outcome.contains(&flag(it));
        Ok(self.arguments.iter().filter(is_known).collect())
    }

    /// Kills it with SIGKILL; when it returns, the process is gone.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        child.kill()?;
        let status = child.wait()?;
        // A program that was asked to stop may have ended before the kill.
        if died(status) || stopped(status) || self.has_failpoint || self.exited_at_start(status)? {
            return Ok(());
        }
        bail!(
            "{} ended by itself: {status}; see {}",
            self.name,
            self.log.display()
        )
    }

    pub(crate) fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let Some(child) = &self.child else {
            return Ok(());
        };
        let id = child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status()?;
        if !sent.success() {
            bail!(
                "{} was gone before SIG{signal}; see {}",
                self.name,
                self.log.display()
            );
        }
        Ok(())
    }

    /// Its exit status, if it has ended: then it may be started again.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let Some(child) = &mut self.child else {
            return Ok(None);
        };
        let status = child.try_wait()?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status)
    }

    /// Starts the process again if a failpoint ended it, or if it exited during its start because of a
    /// fault.
    pub(crate) fn revive(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.ended()? {
            if !self.has_failpoint && !self.exited_at_start(status)? {
                bail!(
                    "{} ended by itself: {status}; see {}",
                    self.name,
                    self.log.display()
                );
            }
            self.start()?;
        }
        Ok(())
    }

    /// Whether it exited during its start because the server was down, or because the disk was too full
    /// to open a database. The caller starts it again.
    pub(crate) fn exited_at_start(&self, status: ExitStatus) -> anyhow::Result<bool> {
        let last = self.log_length().saturating_sub(LOG_TAIL);
        let is_full = self.refused_writes() > self.refused;
        Ok(status.code() == Some(1)
            && (self.log_contains(last, "store is unavailable")?
                || is_full && self.log_contains(last, "cannot be opened")?))
    }

    /// Number of writes that its full disk has refused so far.
    fn refused_writes(&self) -> u64 {
        self.machine_faults
            .as_ref()
            .map_or(0, MachineFaults::refused)
    }

    /// Sends SIGTERM, and waits until it has stopped.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        self.signal("TERM")?;
        self.has_stopped().await
    }

    /// Waits until it has stopped, and fails if its exit status is not the expected one.
    pub(crate) async fn has_stopped(&mut self) -> anyhow::Result<()> {
        let patience = Patience::within(PATIENCE * 3);
        while self.child.is_some() {
            if let Some(status) = self.ended()?
                && !stopped(status)
                && !self.has_failpoint
                && !self.exited_at_start(status)?
            {
                bail!("{} failed: {status}; see {}", self.name, self.log.display());
            }
            patience.pause().await;
        }
        Ok(())
    }

    /// Its process id, while it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The length of its log, in bytes.
    pub(crate) fn log_length(&self) -> u64 {
        self.log.metadata().map_or(0, |it| it.len())
    }

    /// Whether its log contains this text after the given offset.
    pub(crate) fn log_contains(&self, from: u64, text: &str) -> anyhow::Result<bool> {
        let (mut log, mut rest) = (File::open(&self.log)?, Vec::new());
        log.seek(SeekFrom::Start(from))?;
        log.read_to_end(&mut rest)?;
        Ok(String::from_utf8_lossy(&rest).contains(text))
    }

    /// Resident memory in bytes; 0 if it does not run.
    pub(crate) fn resident(&self) -> u64 {
        let text = self
            .id()
            .and_then(|id| std::fs::read_to_string(format!("/proc/{id}/status")).ok());
        let text = text.unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or_default() * 1024
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ended = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// Whether a process stopped as asked, or was ended by SIGTERM before it had a handler for it.
fn stopped(status: ExitStatus) -> bool {
    status.success() || status.signal() == Some(15)
}

/// Whether a process was ended by SIGKILL.
pub(crate) fn died(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_process_without_a_server_or_without_disk_space_is_started_again() {
        const FULL: &str =
            "printf '\\1' | dd of=\"$MACHINE_FAULTS\" bs=1 seek=16 conv=notrunc status=none;";
        let folder = tempfile::tempdir().unwrap();
        let library = crate::preload::build("machine_faults", folder.path()).unwrap();
        for (number, (before, word, code, is_excused)) in [
            ("", "store is unavailable", 1, true),
            ("", "store is unavailable", 101, false),
            ("", "something else", 1, false),
            (FULL, "database cannot be opened", 1, true),
            (FULL, "database cannot be opened", 101, false),
            (FULL, "something else", 1, false),
            ("", "database cannot be opened", 1, false),
        ]
        .into_iter()
        .enumerate()
        {
            let script = format!("{before} echo '{word}' >&2; exit {code}");
            let name = format!("program-{number}");
            let arguments = vec!["-c".to_owned(), script.clone()];
            let mut program = Program::new(&name, folder.path(), "sh".as_ref(), arguments)
                .with_machine_faults(&library);
            program.start().unwrap();
            let first = program.id();
            let patience = Patience::within(PATIENCE);
            let revived = loop {
                let revived = program.revive();
                if revived.is_err() || program.id() != first {
                    break revived;
                }
                patience.pause().await;
            };
            assert_eq!(revived.is_ok(), is_excused, "{script}: {revived:?}");
        }
    }
}
