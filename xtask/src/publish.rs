//! `cargo x publish`: packs every crate that is to be published and checks a program against the
//! packed crates.
//!
//! `cargo publish --dry-run` checks the manifests, in the order of publishing, and packs what a
//! registry would get. A crate that builds in the workspace can still miss a file, a version or a
//! feature there, so the program is outside of the workspace, depends on every library, and takes
//! each from its unpacked archive. Nothing is published.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::{
    metadata::metadata,
    step::{call, call_with},
};

/// The program, and what it depends on besides the crates of Hapax.
const PROGRAM: &str = "examples/axum-sqlite/src/main.rs";
const DEPENDENCIES: &str = r#"axum = { version = "0.8", default-features = false, features = ["http1", "tokio"] }
tokio = { version = "1", default-features = false, features = ["macros", "net", "rt-multi-thread"] }
"#;
/// The one crate without a library.
const COMMAND: &str = "hapax-server";

/// Packs the crates, unpacks them elsewhere, and checks the program.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let metadata = metadata()?;
    let target = metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .context("cargo metadata names no target directory")?;
    let crates = published(&metadata);
    if crates.is_empty() {
        bail!("the workspace has no crate to publish");
    }
    // The program verifies all crates at once, instead of one build for each.
    let flags = "--quiet --no-verify --locked --allow-dirty";
    call(&format!("cargo publish --workspace --dry-run {flags}"))?;
    // A dry run keeps no archives.
    let packages = crates.iter().fold(String::new(), |mut text, (name, _)| {
        let _ = write!(text, " --package {name}");
        text
    });
    call(&format!("cargo package {flags}{packages}"))?;

    let folder = target.join("published");
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(folder.join("src"))?;
    for (name, version) in &crates {
        let archive = target.join(format!("package/{name}-{version}.crate"));
        let (archive, folder) = (archive.display(), folder.display());
        call(&format!(
            "tar --extract --file {archive} --directory {folder}"
        ))?;
    }
    fs::copy(root.join(PROGRAM), folder.join("src/main.rs"))?;
    // The same versions and profiles as in the workspace, so that what is checked already is used. A check finds
    // a missing file, version or feature; generating code would take minutes and find nothing else.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    fs::write(folder.join("Cargo.toml"), manifest(&crates))?;
    let manifest = folder.join("Cargo.toml");
    let target = ("CARGO_TARGET_DIR", target.display().to_string());
    call_with(
        &format!("cargo check --quiet --manifest-path {}", manifest.display()),
        &[target],
    )
}

/// The names and versions of the packages that are not marked as unpublished.
fn published(metadata: &Value) -> Vec<(String, String)> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut crates: Vec<(String, String)> = packages
        .filter(|package| package["publish"].is_null())
        .filter_map(|package| {
            let text = |field: &str| package[field].as_str().map(str::to_owned);
            Some((text("name")?, text("version")?))
        })
        .collect();
    crates.sort();
    crates
}

/// The manifest of the program: its own workspace, with every crate taken from its archive.
fn manifest(crates: &[(String, String)]) -> String {
    let libraries: String = crates.iter().filter(|(name, _)| name != COMMAND).fold(
        String::new(),
        |mut text, (name, version)| {
            let _ = writeln!(text, "{name} = \"{version}\"");
            text
        },
    );
    let mut text = format!(
        "[package]\nname = \"published\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\n{DEPENDENCIES}{libraries}\n\
         [profile.dev.package.\"*\"]\nopt-level = 1\ndebug = false\n\n[workspace]\n\n\
         [patch.crates-io]\n"
    );
    for (name, version) in crates {
        let _ = writeln!(text, "{name} = {{ path = \"{name}-{version}\" }}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_that_may_be_published_are_packed() {
        let metadata = serde_json::json!({"packages": [
            {"name": "shop", "version": "0.1.0", "publish": []},
            {"name": "hapax-http", "version": "0.1.0", "publish": null},
            {"name": "hapax", "version": "0.1.0", "publish": null},
        ]});
        let crates = published(&metadata);
        let names: Vec<&str> = crates.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["hapax", "hapax-http"]);
        assert!(manifest(&crates).ends_with(
            "hapax = { path = \"hapax-0.1.0\" }\nhapax-http = { path = \"hapax-http-0.1.0\" }\n"
        ));
    }
}
