//! `cargo x package`: builds the Debian package of the binary with plain `dpkg-deb`, and checks it;
//! writes the bill of materials beside it.
//!
//! The gate builds the same package from its debug build, with little compression. It checks the
//! paths, the manual pages and the units, and that the unpacked binary runs.

mod root;
mod libraries;
mod deb;
mod checks;
mod units;
mod containers;
mod kubernetes;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::{
    metadata::metadata,
    step::call,
    tool::{self, Tool},
};

/// The programs that build and check the package.
const TOOLS: &[Tool] = &[
    Tool::new("dpkg-shlibdeps --version", "apt-get install dpkg-dev"),
    Tool::new("strip --version", "apt-get install binutils"),
    Tool::new("groff --version", "apt-get install groff-base"),
    Tool::new("systemd-analyze --version", "apt-get install systemd"),
    Tool::new("lintian --version", "apt-get install lintian"),
];

/// The package to build.
#[derive(Debug)]
struct Plan {
    /// The root of the project.
    project: PathBuf,
    binary: PathBuf,
    /// The output folder.
    folder: PathBuf,
    /// The version of the workspace.
    version: String,
    compression: [&'static str; 2],
}

/// Builds and checks the package in the profile `dist`, or with `--check` does what the gate does.
pub(crate) fn package(project: &Path, arguments: &[String]) -> anyhow::Result<()> {
    match arguments {
        [] => {}
        [only] if only == "--check" => return check(project),
        _ => bail!("`cargo x package` takes no argument except --check"),
    }
    tool::require(TOOLS)?;
    call("cargo build --profile dist --locked --package hapax-server")?;
    let plan = Plan::new(project, "dist", "package", ["-Zxz", "-z6"])?;
    let file = made(&plan)?;
    println!("    {}", file.display());
    Ok(())
}

/// Builds and checks the package of the existing debug build, and checks the containers and the
/// manifests for Kubernetes.
pub(crate) fn check(project: &Path) -> anyhow::Result<()> {
    tool::require(TOOLS)?;
    let plan = Plan::new(project, "debug", "package-check", ["-Zgzip", "-z1"])?;
    made(&plan)?;
    containers::check(project, &plan.binary)
}

/// Checks the Kubernetes manifests and the Helm chart with the existing debug build.
pub(crate) fn check_kubernetes(project: &Path) -> anyhow::Result<()> {
    let plan = Plan::new(project, "debug", "package-check", ["-Zgzip", "-z1"])?;
    kubernetes::check(&plan)
}

fn made(plan: &Plan) -> anyhow::Result<PathBuf> {
    let root = root::lay_out(plan)?;
    let file = deb::build(plan, &root)?;
    checks::all(plan, &file)?;
    libraries::bill(plan, &file)?;
    Ok(file)
}

impl Plan {
    fn new(
        project: &Path,
        profile: &str,
        folder: &str,
        compression: [&'static str; 2],
    ) -> anyhow::Result<Self> {
        let metadata = metadata()?;
        let target = metadata["target_directory"].as_str().map(PathBuf::from);
        let target = target.context("cargo metadata names no target directory")?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let version = packages
            .filter(|package| package["name"] == "hapax-server")
            .find_map(|package| package["version"].as_str())
            .context("cargo metadata names no package hapax-server")?;
        let binary = target.join(profile).join("hapax");
        if !binary.exists() {
            bail!("{} is not built", binary.display());
        }
        Ok(Self {
            project: project.to_owned(),
            binary,
            folder: target.join(folder),
            version: version.to_owned(),
            compression,
        })
    }

    fn packaging(&self, file: &str) -> PathBuf {
        self.project.join("packaging").join(file)
    }
}

/// Runs a command, which must succeed, and returns its output.
fn asked(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        bail!("{command:?} ended with {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}
