//! Packages of the tests: Python for probing the HTTP APIs, for decoding OTLP, for testing the
//! gateway and for stand-ins of S3, SQS, SNS and Pub/Sub, validators of OpenAPI and AsyncAPI, the packages of this
//! project with what their services need, and a PostgreSQL with failover slots.
//!
//! The packages are pinned. They are installed in folders under the target directory, and installed
//! again when their list changes. Python and Node must be installed: no test is skipped because
//! they are missing.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::{
    metadata::metadata,
    postgres,
    tool::{self, Tool},
};

const TOOLS: &[Tool] = &[Tool::new(
    "python3 -m pip --version",
    "apt-get install python3 python3-pip",
)];
/// Packages that probe the HTTP APIs: schemathesis and its dependencies.
const PROBER: &str = "crates/hapax-testkit/prober/requirements.txt";
/// Packages that decode the spans that the tests export.
const COLLECTOR: &str = "examples/shop/tests/otlp/requirements.txt";
/// Packages of moto, a stand-in for S3, SQS and SNS.
const MOTO: &str = "crates/hapax-testkit/moto/requirements.txt";
/// Packages of drongo, a stand-in for Google Cloud Pub/Sub.
const DRONGO: &str = "crates/hapax-testkit/drongo/requirements.txt";
/// Packages of the clients and of the application with which the gateway is tested.
const GATEWAY: &str = "proof/gateway/requirements.txt";
/// Packages that validate OpenAPI documents.
const OPEN_API: &str = "crates/hapax-server/tests/catalogue/requirements.txt";
/// The folder of the list of npm packages that validate AsyncAPI documents.
const ASYNC_API: &str = "crates/hapax-server/tests/catalogue";
/// Packages with which the receivers of the torture test verify webhooks.
const ORACLES: &str = "proof/torture/oracles/requirements.txt";
/// Packages that validate the Kubernetes manifests.
const MANIFESTS: &str = "packaging/kubernetes/requirements.txt";
/// Helm as a package, which renders the chart.
const HELM: &str = "packaging/helm/requirements.txt";
/// File that marks a folder whose packages are complete. It contains their list.
const MARK: &str = "installed";

/// Installs all packages that the tests need.
pub(crate) fn install(root: &Path) -> anyhow::Result<()> {
    tool::require(TOOLS)?;
    let target = target()?;
    python(&root.join(PROBER), &target.join("prober"))?;
    python(&root.join(COLLECTOR), &target.join("otlp"))?;
    python(&root.join(ORACLES), &target.join("oracles"))?;
    python(&root.join(GATEWAY), &target.join("gateway"))?;
    python(&root.join(MOTO), &target.join("moto"))?;
    python(&root.join(DRONGO), &target.join("drongo"))?;
    python(&root.join(OPEN_API), &target.join("openapi"))?;
    node(&root.join(ASYNC_API), &target.join("asyncapi"))?;
    postgres::link_failover(&target.join("postgresql-17"))
}

/// Installs the packages that the receivers of the torture test need.
pub(crate) fn oracles(root: &Path) -> anyhow::Result<()> {
    tool::require(TOOLS)?;
    python(&root.join(ORACLES), &target()?.join("oracles"))
}

/// Installs the packages that validate the Kubernetes manifests, and returns their folder.
pub(crate) fn kubernetes(root: &Path) -> anyhow::Result<PathBuf> {
    installed(&root.join(MANIFESTS), "kubernetes")
}

/// Installs the package that renders the chart, and returns its folder.
pub(crate) fn helm(root: &Path) -> anyhow::Result<PathBuf> {
    installed(&root.join(HELM), "helm")
}

fn installed(list: &Path, name: &str) -> anyhow::Result<PathBuf> {
    tool::require(TOOLS)?;
    let folder = target()?.join(name);
    python(list, &folder)?;
    Ok(folder)
}

/// Parses a YAML file, with the library that is installed with schemathesis.
pub(crate) fn yaml(file: &Path) -> anyhow::Result<serde_json::Value> {
    const READ: &str =
        "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)";
    let output = Command::new("python3")
        .args(["-c", READ])
        .arg(file)
        .env("PYTHONPATH", target()?.join("prober"))
        .output()
        .context("cannot run python3")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} is not valid YAML: {said}", file.display());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The target directory of cargo.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let target = metadata()?["target_directory"].as_str().map(PathBuf::from);
    target.context("cargo metadata names no target directory")
}

/// Installs a list of packages of Python into a folder.
pub(crate) fn python(list: &Path, folder: &Path) -> anyhow::Result<()> {
    once(list, folder, || {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-input"])
            .args(["--disable-pip-version-check", "--root-user-action=ignore"])
            .arg("--target")
            .arg(folder)
            .arg("--requirement")
            .arg(list);
        succeed(&mut pip)
    })
}

/// Installs the packages of a lock file of npm into a folder. Their scripts do not run.
fn node(list: &Path, folder: &Path) -> anyhow::Result<()> {
    const LOCK: &str = "package-lock.json";
    once(&list.join(LOCK), folder, || {
        for name in ["package.json", LOCK] {
            fs::copy(list.join(name), folder.join(name))?;
        }
        let mut npm = Command::new("npm");
        npm.args([
            "ci",
            "--ignore-scripts",
            "--silent",
            "--no-audit",
            "--no-fund",
        ])
        .current_dir(folder);
        succeed(&mut npm)
    })
}

/// Installs into an empty folder, unless this list is already installed there.
pub(crate) fn once(
    list: &Path,
    folder: &Path,
    install: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let wanted = fs::read(list).with_context(|| list.display().to_string())?;
    let mark = folder.join(MARK);
    if fs::read(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    drop(fs::remove_dir_all(folder));
    fs::create_dir_all(folder)?;
    install()?;
    fs::write(mark, wanted)?;
    Ok(())
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_installed_again_when_their_list_changes_or_it_failed() {
        let folder = std::env::temp_dir().join(format!("contract-{}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).unwrap();
        let (list, packages) = (folder.join("list"), folder.join("packages"));
        let mut installed = 0;
        let mut check = |names: &str, fails: bool, expected: u32| {
            fs::write(&list, names).unwrap();
            let outcome = once(&list, &packages, || {
                installed += 1;
                anyhow::ensure!(!fails, "no network");
                Ok(())
            });
            assert_eq!(outcome.is_err(), fails);
            assert_eq!(installed, expected, "{names}");
        };
        check("a 1", true, 1);
        check("a 1", false, 2);
        check("a 1", false, 2);
        check("a 2", false, 3);
        fs::remove_dir_all(&folder).unwrap();
    }
}
