//! What a loss of power leaves: processes that stand still, their files copied, and a disk that
//! knows what it has.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::wait::Patience;

/// How long a process may take to stand still: it first ends its wait for a disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// A library, loaded in front of the C library, which logs what stood where something is written,
/// and what was flushed since.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The library.
    pub library: PathBuf,
    /// Where it writes its log.
    pub log: PathBuf,
    /// Whether it says of bytes that they are on the disk which are not.
    pub lies: bool,
}

impl Disk {
    /// What the environment of a process has to say for it to write by way of this.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![
            ("LD_PRELOAD", self.library.clone().into()),
            ("POWER_LOG", self.log.clone().into()),
        ];
        environment.extend(self.lies.then(|| ("POWER_LIES", "1".into())));
        environment
    }

    /// The same, with its library copied and its log kept below `directory`.
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

/// Processes that stand still until this is dropped.
#[derive(Debug)]
pub struct Frozen(Vec<u32>);

impl Frozen {
    /// A process and its children, such as a server's.
    ///
    /// They stop one after the other: what one wrote while another stood still already is what
    /// would have been written had the other been slow.
    ///
    /// # Panics
    /// When they do not.
    pub async fn family(parent: u32) -> Self {
        // The parent first: it makes no more children then.
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
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("CONT", &self.0);
    }
}

/// Copies a directory, with owners and modes; `to` is not there yet.
///
/// # Panics
/// When it cannot be copied.
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

/// A child that has ended meanwhile is none.
fn signal(name: &str, processes: &[u32]) {
    let ids = processes.iter().map(u32::to_string);
    let _sent = Command::new("kill")
        .args(["-s", name, "--"])
        .args(ids)
        .output();
}

/// One that has ended does so as well.
fn stands_still(process: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = state.rsplit(')').next().unwrap_or_default().trim_start();
    state.is_empty() || state.starts_with(['T', 't', 'Z', 'X'])
}
