//! A run in a separate process, for commands that make many runs.

use std::{path::Path, process::Command};

use anyhow::{Context as _, bail};

use crate::{artifacts::Artifacts, deployment::Store, nemesis::Injections, report::broken};

/// Arguments of the run.
#[derive(Clone, Debug)]
pub(crate) struct SeparateRun<'a> {
    pub(crate) store: Store,
    /// Seconds of random faults; `None` stands for a run through every failpoint.
    pub(crate) seconds: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) bug: Option<&'a str>,
    /// The injections of the seed, if not all.
    pub(crate) injections: Option<&'a Injections>,
}

impl SeparateRun<'_> {
    /// The invariants that are violated; the artifacts are written to `folder`.
    pub(crate) fn run(&self, folder: &Path) -> anyhow::Result<Vec<usize>> {
        let mut torture = Command::new(std::env::current_exe()?);
        torture.args(["run", "--store", self.store.name()]);
        torture.args(["--seed", &self.seed.to_string(), "--folder"]);
        torture.arg(folder);
        match self.seconds {
            Some(seconds) => torture.args(["--seconds", &seconds.to_string()]),
            None => torture.arg("--exhaustive"),
        };
        if let Some(bug) = self.bug {
            torture.args(["--bug", bug]);
        }
        if let Some(injections) = self.injections {
            torture.args(["--injections", &injections.to_string()]);
        }
        let output = torture.output().context("torture cannot be run")?;
        if output.status.code() == Some(2) {
            let printed = String::from_utf8_lossy(&output.stdout);
            let last = printed.lines().last().unwrap_or_default();
            bail!("{}: {last}", folder.display());
        }
        Ok(broken(&Artifacts::read(folder)?))
    }
}
