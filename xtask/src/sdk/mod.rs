//! `cargo x sdk`: the packages for TypeScript and Python.
//!
//! They are checked and packed in a copy of `sdk` under the target directory, so that the source tree
//! stays clean. The archives are installed in empty projects and for the services of `sdk/suite`,
//! whose tests then judge them from outside.

mod tree;
mod node;
mod python;
mod services;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::{
    packages,
    postgres::{self, NAME, Server},
    step::{Steps, call_with},
    tool::{self, NEXTEST, Tool},
};

const TOOLS: &[Tool] = &[
    Tool::new(
        "python3 -m pip --version",
        "apt-get install python3 python3-pip",
    ),
    Tool::new(
        "python3 -c assert(__import__('sys').version_info>=(3,10))",
        "Python 3.10 or later",
    ),
    Tool::new(
        "node --eval process.exit(+(parseInt(process.versions.node)<20))",
        "Node 20 or later, from https://nodejs.org",
    ),
    Tool::new("npm --version", "apt-get install npm"),
    Tool::new("pgbouncer --version", "apt-get install pgbouncer"),
];
/// The tests of every framework and every driver.
pub(crate) const WHOLE: &str = "package(sdk-suite)&test(/^whole::/)";

/// The folders of the task.
#[derive(Debug)]
struct Folders {
    root: PathBuf,
    /// The folder of everything that the task builds.
    target: PathBuf,
}

impl Folders {
    fn new(root: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            target: packages::target()?.join("sdk"),
        })
    }

    /// The copy of a package.
    fn copy(&self, language: &str) -> PathBuf {
        self.target.join("tree/sdk").join(language)
    }

    /// The archive in the target directory whose name ends so.
    fn archive(&self, end: &str) -> anyhow::Result<PathBuf> {
        let archives = tree::files(&self.target, end)?;
        match archives.as_slice() {
            [archive] => Ok(archive.clone()),
            found => bail!("expected one archive *{end}, found {}", found.len()),
        }
    }
}

/// Checks both packages, and runs the tests of the suite.
pub(crate) fn sdk(steps: &mut Steps, root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let is_whole = match arguments {
        [] => false,
        [all] if all == "--all" => true,
        [other, ..] => bail!("`cargo x sdk` takes --all only, not `{other}`"),
    };
    steps.run("tools", || tool::require(TOOLS))?;
    // The relay delivers the events of the services.
    steps.call("build", "cargo build --package hapax-server")?;
    steps.run("archives", || install(root))?;
    let server = postgres::for_tests()?;
    steps.run("checks", || check(root, server.as_ref()))?;
    let environment = postgres::environment(server.as_ref());
    steps.run("suite", || call_with(&suite(is_whole), &environment))
}

/// Packs both packages, and installs the archives where the tests expect them.
pub(crate) fn install(root: &Path) -> anyhow::Result<()> {
    tool::require(TOOLS)?;
    let folders = Folders::new(root)?;
    tree::copy(&folders)?;
    node::pack(&folders)?;
    python::pack(&folders)?;
    services::install(&folders)
}

/// Runs the linters and the tests of both packages, which [`install`] has packed.
///
/// The databases of the server must not contain the tables of Hapax yet.
pub(crate) fn check(root: &Path, server: Option<&Server>) -> anyhow::Result<()> {
    let folders = Folders::new(root)?;
    let database = server.map(Server::url).or_else(named_server);
    node::check(&folders, database.as_deref()).context("sdk/node")?;
    python::check(&folders, database.as_deref()).context("sdk/python")
}

/// The server that the environment names. By default the tests of the packages use the one on the
/// usual port.
fn named_server() -> Option<String> {
    std::env::var_os(NAME)?.into_string().ok()
}

/// The command that runs the tests of the suite.
fn suite(is_whole: bool) -> String {
    match (NEXTEST.is_there(), is_whole) {
        (true, true) => "cargo nextest run --package sdk-suite".to_owned(),
        (true, false) => format!("cargo nextest run --package sdk-suite -E all()-({WHOLE})"),
        (false, true) => "cargo test --package sdk-suite".to_owned(),
        (false, false) => "cargo test --package sdk-suite -- --skip whole::".to_owned(),
    }
}

/// Runs a command to its end.
fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
