//! The npm package: its tools, its archive and its checks.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::Context as _;

use super::{Folders, succeed, tree};
use crate::{packages, step::from_a_shell};

const NAME: &str = "node";
const ARCHIVE: &str = ".tgz";
/// File that marks installed packages. It contains their list.
const MARK: &str = "node_modules/installed";
/// Names the engine with which Prisma changes schemas. Only its path is looked at here: a client is
/// generated without it, and it cannot be downloaded from npm.
const ENGINE: (&str, &str) = ("PRISMA_SCHEMA_ENGINE_BINARY", "/bin/true");
/// Names the program `hapax` for the tests.
const PROGRAM: &str = "HAPAX_BINARY";

/// Installs the tools of the package, and packs it.
pub(super) fn pack(folders: &Folders) -> anyhow::Result<()> {
    let folder = folders.copy(NAME);
    install(&folder)?;
    for archive in tree::files(&folders.target, ARCHIVE)? {
        fs::remove_file(archive)?;
    }
    let mut pack = npm(&folder);
    pack.args(["pack", "--silent", "--pack-destination"])
        .arg(&folders.target);
    succeed(&mut pack)
}

/// Runs the linters and the tests of the package. The test of its README runs the program `hapax`,
/// which is built before.
pub(super) fn check(folders: &Folders, database: Option<&str>) -> anyhow::Result<()> {
    let program = packages::target()?.join("debug/hapax");
    for script in ["check", "test"] {
        let mut run = npm(&folders.copy(NAME));
        run.args(["run", script]).env(PROGRAM, &program);
        run.envs(database.map(|url| ("DATABASE_URL", url)));
        succeed(&mut run)?;
    }
    Ok(())
}

/// Installs the archive into an empty project, which has no access to the registry, and returns the
/// folder of the installed package.
pub(super) fn install_archive(folders: &Folders) -> anyhow::Result<PathBuf> {
    let project = folders.target.join("empty/node");
    let _before = fs::remove_dir_all(&project);
    fs::create_dir_all(&project)?;
    fs::write(
        project.join("package.json"),
        "{\"private\": true, \"type\": \"module\"}\n",
    )?;
    let mut install = npm(&project);
    install
        .args(["install", "--offline", "--ignore-scripts", "--silent"])
        .arg(folders.archive(ARCHIVE)?);
    succeed(&mut install)?;
    let mut node = from_a_shell("node");
    node.args(["--input-type=module", "--eval", "await import(\"hapax\")"])
        .current_dir(&project);
    succeed(&mut node)?;
    Ok(project.join("node_modules/hapax"))
}

/// Installs the packages of a lock file, unless this list is already installed. Their scripts do not
/// run.
pub(super) fn install(folder: &Path) -> anyhow::Result<()> {
    let lock = folder.join("package-lock.json");
    let wanted = fs::read(&lock).with_context(|| lock.display().to_string())?;
    let mark = folder.join(MARK);
    if fs::read(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let mut ci = npm(folder);
    ci.args(["ci", "--ignore-scripts", "--silent"]);
    succeed(&mut ci)?;
    fs::write(mark, wanted)?;
    Ok(())
}

/// Generates Prisma's client from the schema in a folder.
pub(super) fn generate(folder: &Path) -> anyhow::Result<()> {
    let mut prisma = from_a_shell("node");
    prisma
        .args(["node_modules/prisma/build/index.js", "generate"])
        .args(["--schema", "schema.prisma", "--no-hints"])
        .env(ENGINE.0, ENGINE.1)
        .current_dir(folder)
        .stdout(Stdio::null());
    succeed(&mut prisma)
}

fn npm(folder: &Path) -> Command {
    let mut npm = from_a_shell("npm");
    npm.env("npm_config_audit", "false")
        .env("npm_config_fund", "false")
        .env("npm_config_progress", "false")
        .env("npm_config_update_notifier", "false")
        .env(ENGINE.0, ENGINE.1)
        .current_dir(folder);
    npm
}
