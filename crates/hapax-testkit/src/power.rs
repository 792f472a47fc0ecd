//! Simulated power failure: freezes processes, copies their files, and records what a disk has
//! flushed.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::wait::Patience;

/// How long a process may take to stop, including a wait for the disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// A preloaded library that records the previous content of everything that is written, and what
/// was flushed since.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The library.
    pub library: PathBuf,
    /// The path of its log.
    pub log: PathBuf,
    /// Whether the disk reports writes as flushed that are not.
    pub lies: bool,
}

impl Disk {
    /// The environment of a process that writes through the library.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![
            ("LD_PRELOAD", self.library.clone().into()),
            ("POWER_LOG", self.log.clone().into()),
        ];
        environment.extend(self.lies.then(|| ("POWER_LIES", "1".into())));
        environment
    }

    /// The same disk, with a copy of the library and the log below `directory`.
    pub(crate) fn within(&self, directory: &Path) -> Self {
        let library = directory.join("disk.so");
        let copied = fs::copy(&self.library, &library);
        copied.unwrap_or_else(|error| panic!("cannot copy {}: {error}", self.library.display()));
        Self {
            library,
            log: directory.join("unsynced"),
            lies: self.lies,
        }
    }
}

/// Processes that are stopped until this value is dropped.
#[derive(Debug)]
pub struct Frozen(Vec<u32>);

impl Frozen {
    /// Stops a process and its children, such as those of a server.
    ///
    /// They stop one after the other. A write of one process after another one is stopped could
    /// also have happened if the other one had been slow.
    ///
    /// # Panics
    /// Panics if they do not stop.
    pub async fn family(parent: u32) -> Self {
        // The parent is stopped first, so that it starts no more children.
        let mut frozen = Self(vec![parent]);
        signal("STOP", &frozen.0);
        let children = format!("/proc/{parent}/task/{parent}/children");
        let children = fs::read_to_string(children).unwrap_or_default();
        let children: Vec<u32> = children
            .split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect();
        signal("STOP", &children);
        frozen.0.extend(children);
        let patience = Patience::within(PATIENCE);
        while !frozen.0.iter().all(|id| stands_still(*id)) {
            patience.pause().await;
        }
        frozen
    }

    /// Kills the processes with SIGKILL, before any of them continues.
    pub fn kill(self) {
        signal("KILL", &self.0);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("CONT", &self.0);
    }
}

/// Copies a directory with owners and modes. `to` must not exist.
///
/// # Panics
/// Panics if the copy fails.
pub fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp")
        .args(["-a", "--"])
        .arg(from)
        .arg(to)
        .status();
    assert!(
        copied.is_ok_and(|it| it.success()),
        "cannot copy {} to {}",
        from.display(),
        to.display()
    );
}

/// A child that has ended in the meantime is ignored.
fn signal(name: &str, processes: &[u32]) {
    let ids = processes.iter().map(u32::to_string);
    let _sent = Command::new("kill")
        .args(["-s", name, "--"])
        .args(ids)
        .output();
}

/// Whether a process is stopped or has ended.
fn stands_still(process: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = state.rsplit(')').next().unwrap_or_default().trim_start();
    state.is_empty() || state.starts_with(['T', 't', 'Z', 'X'])
}
