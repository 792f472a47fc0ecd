//! The libraries in the binary: a list for people, and a bill of materials in `CycloneDX`.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::{Plan, asked};

/// The third-party libraries in the binary: name, version and licence.
pub(super) fn listed() -> anyhow::Result<String> {
    let mut tree = Command::new("cargo");
    tree.args(["tree", "--locked", "--package", "hapax-server"])
        .args(["--edges", "normal", "--prefix", "none", "--no-dedupe"])
        .args(["--format", "{p}\t{l}"]);
    let listed = asked(&mut tree)?;
    // Packages with a path belong to this project.
    let mut lines: Vec<_> = listed
        .lines()
        .filter(|line| !line.contains(" (/"))
        .collect();
    lines.sort_unstable();
    lines.dedup();
    Ok(lines.join("\n") + "\n")
}

/// Writes the bill of materials beside the package, and returns its path.
pub(super) fn bill(plan: &Plan, package: &Path) -> anyhow::Result<PathBuf> {
    let lock = fs::read_to_string(plan.project.join("Cargo.lock"))?;
    let bill = bill_of(&plan.version, &listed()?, &checksums(&lock))?;
    let file = package.with_extension("cdx.json");
    fs::write(&file, serde_json::to_string_pretty(&bill)? + "\n")?;
    Ok(file)
}

/// A document in `CycloneDX` 1.5 without a time or a serial number, so that builds are reproducible.
fn bill_of(
    version: &str,
    listed: &str,
    checksums: &HashMap<(&str, &str), &str>,
) -> anyhow::Result<Value> {
    let mut components = Vec::new();
    for line in listed.lines() {
        let (package, licence) = line.split_once('\t').unwrap_or((line, ""));
        // Macros have a remark after the version.
        let mut words = package.split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else {
            bail!("cargo tree printed {line:?}");
        };
        let version = version.trim_start_matches('v');
        let checksum = checksums
            .get(&(name, version))
            .with_context(|| format!("Cargo.lock has no checksum of {name} {version}"))?;
        let id = format!("pkg:cargo/{name}@{version}");
        components.push(json!({
            "type": "library",
            "bom-ref": id,
            "name": name,
            "version": version,
            "purl": id,
            "hashes": [{ "alg": "SHA-256", "content": checksum }],
            "licenses": [{ "expression": licence.replace('/', " OR ") }],
        }));
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "bom-ref": format!("pkg:cargo/hapax-server@{version}"),
            "name": "hapax",
            "version": version,
        } },
        "components": components,
    }))
}

/// The checksums of the packages in Cargo.lock that come from a registry, by name and version.
fn checksums(lock: &str) -> HashMap<(&str, &str), &str> {
    let packages = lock.split("[[package]]");
    packages
        .filter_map(|package| {
            let key = (field(package, "name")?, field(package, "version")?);
            Some((key, field(package, "checksum")?))
        })
        .collect()
}

/// A field of a package in Cargo.lock.
fn field<'a>(package: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| {
        let value = line.strip_prefix(name)?.strip_prefix(" = \"")?;
        value.strip_suffix('"')
    };
    package.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"
[[package]]
name = "bytes"
version = "1.12.1"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "ab12"

[[package]]
name = "hapax"
version = "0.1.0"
dependencies = [
 "bytes",
]
"#;

    #[test]
    fn a_bill_names_each_library_with_its_checksum_and_its_licences() {
        let checksums = checksums(LOCK);
        assert_eq!(checksums.len(), 1);
        let bill = bill_of("0.1.0", "bytes v1.12.1\tMIT/Apache-2.0\n", &checksums).unwrap();
        let component = &bill["components"][0];
        assert_eq!(component["purl"], "pkg:cargo/bytes@1.12.1");
        assert_eq!(component["hashes"][0]["content"], "ab12");
        assert_eq!(component["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["metadata"]["component"]["version"], "0.1.0");
        assert!(bill_of("0.1.0", "other v1.0.0\tMIT", &checksums).is_err());
    }
}
