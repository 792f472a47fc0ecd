//! One process of a run: started, hit by faults, and started again under its old name.

use std::{
    fs::File,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use anyhow::{Context as _, bail};
use hapax_testkit::{machine_faults::MachineFaults, power::Disk, wait::Patience};

use super::PATIENCE;

/// Number of bytes at the end of a log that show why the process ended.
const LAST_WORDS: u64 = 600;

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
    trouble: Option<MachineFaults>,
    /// Number of writes that its disk had refused when it was started.
    refused: u64,
    child: Option<Child>,
    /// Whether it was started with a failpoint: then it may end by itself, as may a process that
    /// cannot create its tables.
    is_struck: bool,
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
            trouble: None,
            refused: 0,
            child: None,
            is_struck: false,
        }
    }

    /// Another process of the same program with the same environment, under this name, with arguments
    /// that may differ; not started, and in no trouble.
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

    /// The same, on a machine that may get into trouble, by way of this library.
    pub(crate) fn in_trouble(mut self, library: &Path) -> Self {
        let matter = self.log.with_extension("trouble");
        self.trouble = Some(MachineFaults::none(library, &matter));
        self
    }

    /// The trouble it may be in.
    pub(crate) fn trouble(&self) -> Option<&MachineFaults> {
        self.trouble.as_ref()
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
            bail!("{} is not there", other.display());
        }
        self.other = Some(other);
        Ok(())
    }

    /// From the next start on, the program of the other release; false where there is none.
    pub(crate) fn change_over(&mut self) -> bool {
        self.other
            .as_mut()
            .map(|other| std::mem::swap(other, &mut self.binary))
            .is_some()
    }

    /// Where the program is that runs.
    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        self.start_with(&[])
    }

    /// Starts it, for this life, with more in its environment.
    pub(crate) fn start_with(&mut self, more: &[(&str, &str)]) -> anyhow::Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        self.is_struck = !more.is_empty();
        self.refused = self.has_refused();
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
            .args(self.known()?)
            .env_clear()
            .env("PATH", path)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(self.trouble.iter().flat_map(MachineFaults::environment))
            .envs(more.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let started = command.spawn();
        self.child = Some(started.with_context(|| format!("{} cannot be started", self.name))?);
        Ok(())
    }

    /// The arguments that this release knows.
    fn known(&self) -> anyhow::Result<Vec<&String>> {
        if self.other.is_none() {
            return Ok(self.arguments.iter().collect());
        }
        let words = self.arguments.iter().take_while(|it| !it.starts_with('-'));
        let outcome = Command::new(&self.binary)
            .args(words)
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
        if died(status) || stopped(status) || self.is_struck || self.gave_up(status)? {
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

    /// How it ended, if it has: then it may be started again.
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

    /// Starts the process again if a failpoint ended it, or if it gave up at its start.
    pub(crate) fn revive(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.ended()? {
            if !self.is_struck && !self.gave_up(status)? {
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

    /// Whether it ended because the server was away when it started, or because the disk had no
    /// room to open a database. The caller starts it again.
    pub(crate) fn gave_up(&self, status: ExitStatus) -> anyhow::Result<bool> {
        let last = self.said().saturating_sub(LAST_WORDS);
        let is_full = self.has_refused() > self.refused;
        Ok(status.code() == Some(1)
            && (self.has_said(last, "store is unavailable")?
                || is_full && self.has_said(last, "cannot be opened")?))
    }

    /// How often its disk was full so far.
    fn has_refused(&self) -> u64 {
        self.trouble.as_ref().map_or(0, MachineFaults::refused)
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        self.signal("TERM")?;
        self.has_stopped().await
    }

    /// Waits until it has stopped in good order.
    pub(crate) async fn has_stopped(&mut self) -> anyhow::Result<()> {
        let patience = Patience::within(PATIENCE * 3);
        while self.child.is_some() {
            if let Some(status) = self.ended()?
                && !stopped(status)
                && !self.is_struck
                && !self.gave_up(status)?
            {
                bail!("{} failed: {status}; see {}", self.name, self.log.display());
            }
            patience.pause().await;
        }
        Ok(())
    }

    /// Its process, while it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// How long its log is by now.
    pub(crate) fn said(&self) -> u64 {
        self.log.metadata().map_or(0, |it| it.len())
    }

    /// Whether its log contains this text after the given offset.
    pub(crate) fn has_said(&self, from: u64, word: &str) -> anyhow::Result<bool> {
        let log = std::fs::read(&self.log)?;
        let rest = log.get(usize::try_from(from)?..).unwrap_or_default();
        Ok(String::from_utf8_lossy(rest).contains(word))
    }

    /// Bytes of memory that it has in use; none when it does not run.
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

/// Whether a process stopped in good order, or had not got as far yet as to hear SIGTERM.
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
    async fn whoever_finds_no_server_or_no_room_is_started_again_and_nobody_else_may_end() {
        const FULL: &str =
            "printf '\\1' | dd of=\"$TROUBLE\" bs=1 seek=16 conv=notrunc status=none;";
        let folder = tempfile::tempdir().unwrap();
        let library = crate::preload::build("trouble", folder.path()).unwrap();
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
            let mut program =
                Program::new(&name, folder.path(), "sh".as_ref(), arguments).in_trouble(&library);
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
