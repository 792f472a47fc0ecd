//! Installation of a package with the framework and the adapters that its app uses.
//!
//! Scripts of npm packages do not run. Packages are installed again when the manifest changes. An
//! app in Rust is built each time; cargo knows what has changed.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::Context as _;

use super::{
    Folders, MANIFEST, PACKAGES,
    manifest::{Peer, Registry},
    running,
};
use crate::packages;

const LIMIT: Duration = Duration::from_mins(10);
const BUILD_LIMIT: Duration = Duration::from_mins(30);

/// Installs a package and its app.
pub(super) fn install(folders: &Folders, peer: &Peer) -> anyhow::Result<()> {
    let output = folders.file(peer, "install.log");
    let folder = folders.installed(peer);
    if peer.registry == Registry::Crates {
        let build = build(&folders.sources(peer), &folder);
        running::succeed("cargo build", build, &output, BUILD_LIMIT)?;
        return Ok(());
    }
    packages::once(&folders.root.join(MANIFEST), &folder, || {
        if peer.registry == Registry::Npm {
            // Without this file, npm would install into a folder above that has one.
            fs::write(folder.join("package.json"), "{\"private\": true}\n")?;
            running::succeed("npm install", npm(peer, &folder), &output, LIMIT)?;
        } else {
            running::succeed("pip install", pip(peer, &folder), &output, LIMIT)?;
        }
        Ok(())
    })?;
    // Node looks for packages in the folder of the app.
    let app = peer.start.last().context("`start` is empty")?;
    fs::copy(folders.sources(peer).join(app), folder.join(app))
        .with_context(|| format!("cannot copy the app of {}", peer.name))?;
    Ok(())
}

fn npm(peer: &Peer, folder: &Path) -> Command {
    let mut npm = running::command("npm");
    npm.args(["install", "--ignore-scripts", "--save-exact"])
        .args(["--no-audit", "--no-fund", "--no-progress"])
        .arg("--loglevel=error")
        .args(pins(peer, "@"))
        .current_dir(folder);
    npm
}

fn pip(peer: &Peer, folder: &Path) -> Command {
    let mut pip = running::command("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-input"])
        .args(["--disable-pip-version-check", "--root-user-action=ignore"])
        .arg("--target")
        .arg(folder.join(PACKAGES))
        .args(pins(peer, "=="));
    pip
}

fn build(sources: &Path, folder: &Path) -> Command {
    let mut cargo = running::command("cargo");
    cargo
        .args(["build", "--quiet", "--release", "--locked"])
        .arg("--manifest-path")
        .arg(sources.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(folder.join("build"));
    cargo
}

/// The package and its dependencies with their versions, as the registry's client expects them.
fn pins(peer: &Peer, separator: &str) -> Vec<String> {
    let own = (&peer.package, &peer.version);
    std::iter::once(own)
        .chain(&peer.dependencies)
        .map(|(package, version)| format!("{package}{separator}{version}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::manifest::{Manifest, SAMPLE};

    #[test]
    fn every_package_is_installed_at_its_pinned_version() {
        let manifest = Manifest::parse(SAMPLE).unwrap();
        let peer = &manifest.peers[0];
        let npm = format!("{:?}", npm(peer, Path::new("packages")));
        for expected in ["--ignore-scripts", "@scope/keys@1.2.3", "express@4.0.0"] {
            assert!(npm.contains(expected), "{npm}");
        }
        assert_eq!(
            pins(peer, "=="),
            [
                "@scope/keys==1.2.3",
                "@scope/memory==2.0.0",
                "express==4.0.0"
            ]
        );
    }
}
