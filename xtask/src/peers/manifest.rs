//! `proof/peers/peers.toml`: the packages, their pinned versions, and what their documentation
//! promises.
//!
//! Unknown members are rejected, and so are two packages with one name: it names a folder.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// The packages in the order of the page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    #[serde(rename = "peer")]
    pub(super) peers: Vec<Peer>,
}

/// A package and the app in which it is probed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Peer {
    /// The folder of the app, under `proof/peers`.
    pub(super) name: String,
    pub(super) package: String,
    pub(super) registry: Registry,
    pub(super) version: String,
    /// The program and its arguments, relative to the folder with the installed packages.
    pub(super) start: Vec<String>,
    /// A path to which a POST creates a session, if the app requires one.
    pub(super) session: Option<String>,
    /// How the package is set up, in sentences.
    pub(super) setup: String,
    /// What is installed too, with its version.
    pub(super) dependencies: BTreeMap<String, String>,
    pub(super) documented: Documented,
}

/// What the documentation of a package promises.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Documented {
    pub(super) source: String,
    pub(super) replay: String,
    pub(super) mismatch: String,
    pub(super) in_flight: String,
}

/// Where a package is published.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(super) enum Registry {
    #[serde(rename = "npm")]
    Npm,
    #[serde(rename = "pypi")]
    Pypi,
    #[serde(rename = "crates.io")]
    Crates,
}

impl Registry {
    /// The name of the registry, as on the page.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pypi => "PyPI",
            Self::Crates => "crates.io",
        }
    }
}

impl Manifest {
    /// Reads a manifest.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// Parses a manifest.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let manifest: Self = toml::from_str(text)?;
        for (at, peer) in manifest.peers.iter().enumerate() {
            let name = &peer.name;
            let is_part = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
            ensure!(
                !name.is_empty() && name.chars().all(is_part),
                "name: expected lower-case letters, digits and `-`, got {name:?}"
            );
            ensure!(
                manifest.peers[..at].iter().all(|other| other.name != *name),
                "name: {name:?} is there twice"
            );
            ensure!(
                !peer.start.is_empty(),
                "{name}: start: expected a program, got an empty list"
            );
        }
        Ok(manifest)
    }
}

#[cfg(test)]
pub(super) const SAMPLE: &str = r#"
[[peer]]
name = "keys"
package = "@scope/keys"
registry = "npm"
version = "1.2.3"
start = ["node", "app.js"]
setup = "The first example."

[peer.dependencies]
express = "4.0.0"
"@scope/memory" = "2.0.0"

[peer.documented]
source = "https://example.org/keys"
replay = "the stored response"
mismatch = "422"
in_flight = "409"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_names_packages_versions_and_promises() {
        let manifest = Manifest::parse(SAMPLE).unwrap();
        let [peer] = &manifest.peers[..] else {
            panic!("{manifest:?}");
        };
        assert_eq!(peer.package, "@scope/keys");
        assert_eq!(peer.registry, Registry::Npm);
        assert_eq!(peer.dependencies["@scope/memory"], "2.0.0");
        assert_eq!(peer.session, None);
        assert_eq!(peer.documented.in_flight, "409");
    }

    #[test]
    fn a_manifest_with_a_mistake_is_refused_with_the_member() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            let error = format!("{:#}", Manifest::parse(text).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
        check(&SAMPLE.replace("\"npm\"", "\"cpan\""), "cpan");
        check(&SAMPLE.replace("version =", "edition ="), "edition");
        check(&SAMPLE.replace("\"keys\"", "\"../keys\""), "name: expected");
        check(&format!("{SAMPLE}{SAMPLE}"), "\"keys\" is there twice");
        check(
            &SAMPLE.replace("[\"node\", \"app.js\"]", "[]"),
            "keys: start: expected a program",
        );
    }

    #[test]
    fn every_package_of_the_project_has_an_app_with_the_versions_of_the_manifest() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let folder = root.join("proof/peers");
        let manifest = Manifest::read(&folder.join("peers.toml")).unwrap();
        assert!(!manifest.peers.is_empty());
        for peer in &manifest.peers {
            let app = folder.join(&peer.name);
            if peer.registry == Registry::Crates {
                let pinned = fs::read_to_string(app.join("Cargo.toml")).unwrap();
                let own = (&peer.package, &peer.version);
                for (package, version) in peer.dependencies.iter().chain([own]) {
                    let is_pinned = |line: &str| {
                        line.starts_with(&format!("{package} = "))
                            && line.contains(&format!("\"={version}\""))
                    };
                    assert!(pinned.lines().any(is_pinned), "{package} {version}");
                }
            } else {
                let file = peer.start.last().unwrap();
                assert!(app.join(file).is_file(), "{}", peer.name);
            }
        }
    }
}
