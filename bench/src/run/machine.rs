//! Description of the machine on which the figures were measured.

use std::{
    fmt,
    fs::{self, File},
    io::{Seek as _, Write as _},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, bail};

use super::folder::Folder;

/// Number of syncs with which the disk is measured.
const SYNCS: usize = 200;

/// The properties of the machine that affect the figures.
#[derive(Debug)]
pub(super) struct Machine {
    cores: usize,
    model: String,
    memory: String,
    kernel: String,
    file_system: String,
    sync: [Duration; 3],
    load: String,
    rustc: String,
    commit: String,
    date: String,
}

impl Machine {
    /// Reads the properties and measures the disk of `folder`, which must be a real one.
    pub(super) fn look(folder: &Path) -> anyhow::Result<Self> {
        let file_system = file_system(folder)?;
        if matches!(file_system.as_str(), "tmpfs" | "ramfs") {
            let path = folder.display();
            bail!("{path} is in memory ({file_system}), where commits are free: use --dir");
        }
        let read = |path| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let field = |text: &str, name| {
            let line = text
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap_or_default();
            line.split_once(':')
                .map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        Ok(Self {
            cores: thread::available_parallelism().map_or(0, Into::into),
            model: field(&read("/proc/cpuinfo"), "model name"),
            memory: field(&read("/proc/meminfo"), "MemTotal"),
            kernel: read("/proc/sys/kernel/osrelease"),
            file_system,
            sync: sync(folder)?,
            load: read("/proc/loadavg"),
            rustc: said("rustc", &["--version"]),
            commit: commit(),
            date: date(),
        })
    }

    /// The date and the commit of the measurements.
    pub(super) fn measured(&self) -> String {
        format!("{}, commit {}", self.date, self.commit)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [min, median, max] = self.sync;
        writeln!(f, "- measured: {}", self.measured())?;
        writeln!(
            f,
            "- machine: {} cores, {}, {}",
            self.cores, self.model, self.memory
        )?;
        writeln!(f, "- system: Linux {}, {}", self.kernel, self.file_system)?;
        writeln!(
            f,
            "- disk: fdatasync of 4 KiB takes {median:.0?} (median of {SYNCS}; {min:.0?} to {max:.0?})"
        )?;
        writeln!(
            f,
            "- built by {}, with SQLite {}",
            self.rustc,
            rusqlite::version()
        )?;
        writeln!(f, "- load average before: {}", self.load)
    }
}

/// The type of the file system of `folder`.
fn file_system(folder: &Path) -> anyhow::Result<String> {
    let folder = folder.canonicalize()?;
    let mounts = fs::read_to_string("/proc/mounts").context("cannot read /proc/mounts")?;
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        folder.starts_with(point).then_some((point.len(), kind))
    });
    let nearest = mounted.max_by_key(|(length, _)| *length);
    Ok(nearest.map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned()))
}

/// Minimum, median and maximum duration of a synced write of 4 KiB.
fn sync(folder: &Path) -> anyhow::Result<[Duration; 3]> {
    let folder = Folder::make(folder, "disk")?;
    let mut file = File::create(folder.path().join("page"))?;
    let mut took = Vec::new();
    for round in 0..SYNCS {
        file.rewind()?;
        file.write_all(&[u8::try_from(round % 251).unwrap_or(0); 4096])?;
        let start = Instant::now();
        file.sync_data()?;
        took.push(start.elapsed());
    }
    took.sort();
    Ok([took[0], took[SYNCS / 2], took[SYNCS - 1]])
}

fn commit() -> String {
    let mut commit = said("git", &["rev-parse", "--short", "HEAD"]);
    if commit.is_empty() {
        return "unknown".to_owned();
    }
    if !said("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty() {
        commit.push_str(" with local changes");
    }
    commit
}

/// The output of a program; empty if it cannot be run.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

#[expect(clippy::disallowed_methods, reason = "a report contains its date")]
fn date() -> String {
    httpdate::fmt_http_date(SystemTime::now())
}
