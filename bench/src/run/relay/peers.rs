//! Other queue libraries: they are installed below the folder of `--dir`.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::super::service::Running;

/// A program that drains the queue of another library.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    command: Vec<PathBuf>,
    /// The degrees of parallelism to try: processes, workers or local queues.
    pub(super) choices: [u32; 2],
}

#[derive(Deserialize)]
struct Said {
    seconds: f64,
}

/// Installs a program with npm, unless its current list of packages is installed already.
pub(super) fn node(dir: &Path, name: &str, choices: [u32; 2]) -> anyhow::Result<Peer> {
    let (from, to) = (sources(name), dir.join("peers").join(name));
    fs::create_dir_all(&to)?;
    let list = fs::read(from.join("package-lock.json"))?;
    let mark = to.join("installed");
    if fs::read(&mark).ok().as_ref() != Some(&list) {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(from.join(file), to.join(file))?;
        }
        let arguments = ["ci", "--silent", "--no-audit", "--no-fund", "--no-progress"];
        succeed(Command::new("npm").args(arguments).current_dir(&to))?;
        fs::write(mark, list)?;
    }
    fs::copy(from.join("drain.js"), to.join("drain.js"))?;
    Ok(Peer {
        command: vec!["node".into(), to.join("drain.js")],
        choices,
    })
}

/// Builds a program that is a separate workspace.
pub(super) fn cargo(dir: &Path, name: &str, choices: [u32; 2]) -> anyhow::Result<Peer> {
    fs::create_dir_all(dir.join("peers"))?;
    let target = dir.join("peers").canonicalize()?.join("target");
    let mut build = Command::new("cargo");
    build.args([
        "build",
        "--release",
        "--quiet",
        "--locked",
        "--manifest-path",
    ]);
    build.arg(sources(name).join("Cargo.toml"));
    build.arg("--target-dir").arg(&target);
    succeed(&mut build)?;
    Ok(Peer {
        command: vec![target.join("release").join(name)],
        choices,
    })
}

impl Peer {
    /// Creates its schema and its jobs in an empty database.
    pub(super) async fn fill(&self, folder: &Path, url: &str, jobs: u64) -> anyhow::Result<()> {
        let jobs = jobs.to_string();
        self.run(folder, &["fill", url, &jobs]).await?;
        super::parts::settle(url).await
    }

    /// Runs the jobs and returns the duration in seconds.
    pub(super) async fn drain(
        &self,
        folder: &Path,
        url: &str,
        jobs: u64,
        choice: u32,
    ) -> anyhow::Result<f64> {
        let (jobs, choice) = (jobs.to_string(), choice.to_string());
        let said = self.run(folder, &["drain", url, &jobs, &choice]).await?;
        let said: Said = serde_json::from_str(said.trim())
            .with_context(|| format!("cannot parse the output of a drain: {said}"))?;
        Ok(said.seconds)
    }

    async fn run(&self, folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
        let [program, more @ ..] = &self.command[..] else {
            anyhow::bail!("the peer has no program");
        };
        let mut command = Command::new(program);
        command.args(more).args(arguments.iter().map(OsStr::new));
        Running::start(command, &folder.join("peer.log"))?
            .ended()
            .await
    }
}

fn sources(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("peers")
        .join(name)
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
