//! The package for Python: its tools, its archives and its checks.
//!
//! The tools are installed in a virtual environment. It has no pip: that of the system installs into
//! it, so that Debian's package python3-venv is not needed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

use super::{Folders, succeed, tree};
use crate::{packages, step::from_a_shell};

const NAME: &str = "python";
const WHEEL: &str = ".whl";
const SOURCES: &str = ".tar.gz";
/// The interpreter of a virtual environment.
const PYTHON: &str = "bin/python";

/// Installs the tools of the package, and builds its archives.
pub(super) fn pack(folders: &Folders) -> anyhow::Result<()> {
    let python = tools(folders)?;
    for end in [WHEEL, SOURCES] {
        for archive in tree::files(&folders.target, end)? {
            fs::remove_file(archive)?;
        }
    }
    let mut build = interpreter(&python);
    build
        .args(["-m", "build", "--no-isolation", "--outdir"])
        .arg(&folders.target)
        .arg(folders.copy(NAME))
        .stdout(Stdio::null());
    succeed(&mut build)
}

/// Runs the linters and the tests of the package, on the installed archive.
pub(super) fn check(folders: &Folders, database: Option<&str>) -> anyhow::Result<()> {
    let python = tools(folders)?;
    let mut install = pip(&python);
    install
        .args(["install", "--quiet", "--force-reinstall", "--no-deps"])
        .arg(folders.archive(WHEEL)?);
    succeed(&mut install)?;
    let mut check = from_a_shell("sh");
    check
        .arg(folders.copy(NAME).join("check"))
        .env("PYTHON", &python)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // The lines of the README start the relay.
        .env(
            "HAPAX_PROGRAM",
            folders.target.with_file_name("debug").join("hapax"),
        )
        .envs(database.map(|url| ("DATABASE_URL", url)));
    succeed(&mut check)
}

/// Installs the archive into an empty environment, without access to the registry.
pub(super) fn install_archive(folders: &Folders) -> anyhow::Result<()> {
    let folder = folders.target.join("empty/python");
    let _before = fs::remove_dir_all(&folder);
    let python = environment(&folder)?;
    let mut install = pip(&python);
    install
        .args(["install", "--quiet", "--no-index"])
        .arg(folders.archive(WHEEL)?);
    succeed(&mut install)?;
    succeed(interpreter(&python).args(["-c", "import hapax"]))
}

/// Installs the archive beside other packages.
pub(super) fn install_archive_into(folders: &Folders, packages: &Path) -> anyhow::Result<()> {
    let mut install = from_a_shell("python3");
    install
        .args(["-m", "pip", "install", "--quiet", "--no-input"])
        .args(["--disable-pip-version-check", "--root-user-action=ignore"])
        .args(["--no-deps", "--upgrade", "--target"])
        .arg(packages)
        .arg(folders.archive(WHEEL)?);
    succeed(&mut install)
}

/// Installs the tools that the package lists as the extra `dev`, and returns the interpreter.
fn tools(folders: &Folders) -> anyhow::Result<PathBuf> {
    let folder = folders.target.join("tools");
    let manifest = folders.copy(NAME).join("pyproject.toml");
    let manifest = fs::read_to_string(&manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let list = folders.target.join("tools.txt");
    fs::write(&list, dev_requirements(&manifest)?)?;
    packages::once(&list, &folder, || {
        let python = environment(&folder)?;
        let mut install = pip(&python);
        install.args(["install", "--quiet", "--requirement"]);
        succeed(install.arg(&list))
    })?;
    Ok(folder.join(PYTHON))
}

/// The pinned packages of the extra `dev`, one on each line.
fn dev_requirements(manifest: &str) -> anyhow::Result<String> {
    let manifest: toml::Table = toml::from_str(manifest).context("pyproject.toml is not valid")?;
    let dev = manifest
        .get("project")
        .and_then(|project| project.get("optional-dependencies")?.get("dev")?.as_array())
        .context("pyproject.toml has no extra `dev`")?;
    let mut lines = String::new();
    for requirement in dev {
        let requirement = requirement.as_str().context("a requirement is a text")?;
        if !requirement.contains("==") {
            bail!("pyproject.toml, extra `dev`: {requirement} is not pinned");
        }
        lines.push_str(requirement);
        lines.push('\n');
    }
    Ok(lines)
}

/// Creates a virtual environment, and returns its interpreter.
fn environment(folder: &Path) -> anyhow::Result<PathBuf> {
    let mut create = from_a_shell("python3");
    create.args(["-m", "venv", "--without-pip"]).arg(folder);
    succeed(&mut create)?;
    Ok(folder.join(PYTHON))
}

fn interpreter(python: &Path) -> Command {
    from_a_shell(&python.display().to_string())
}

/// The pip of the system, for the environment of an interpreter.
fn pip(python: &Path) -> Command {
    let mut pip = from_a_shell("python3");
    pip.args(["-m", "pip", "--disable-pip-version-check", "--no-input"])
        .arg("--python")
        .arg(python);
    pip
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_are_those_of_the_manifest_and_each_is_pinned() {
        let manifest = |dev: &str| format!("[project.optional-dependencies]\ndev = [{dev}]\n");
        let pinned = dev_requirements(&manifest("\"build==1.6.1\", \"ruff==0.17.6\"")).unwrap();
        assert_eq!(pinned, "build==1.6.1\nruff==0.17.6\n");
        for (text, expected) in [
            (manifest("\"ruff>=0.17\""), "ruff>=0.17 is not pinned"),
            ("[project]\n".to_owned(), "has no extra `dev`"),
        ] {
            let error = dev_requirements(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
