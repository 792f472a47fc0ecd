//! Builds the archive with `dpkg-deb`: control files, dependencies and files.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use super::{Plan, asked, root};

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Builds the archive from the files below `root`.
pub(super) fn build(plan: &Plan, root: &Path) -> anyhow::Result<PathBuf> {
    let changelog = fs::read_to_string(plan.packaging("debian/changelog"))?;
    let version = version(&changelog, &plan.version)?;
    let architecture = asked(Command::new("dpkg").arg("--print-architecture"))?;
    let (files, bytes) = files(root)?;
    let control = fs::read_to_string(plan.packaging("debian/control"))?
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", architecture.trim())
        .replace("@INSTALLED_SIZE@", &bytes.div_ceil(1024).to_string())
        .replace("@DEPENDS@", &depends(plan, root)?);
    let sums = asked(Command::new("md5sum").args(&files).current_dir(root))?;

    let folder = root.join("DEBIAN");
    fs::create_dir_all(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
    let put = |name: &str, text: &str, mode: u32| -> anyhow::Result<()> {
        let file = folder.join(name);
        fs::write(&file, text)?;
        Ok(fs::set_permissions(
            &file,
            fs::Permissions::from_mode(mode),
        )?)
    };
    put("control", &control, 0o644)?;
    put("md5sums", &sums, 0o644)?;
    let conffiles = fs::read_to_string(plan.packaging("debian/conffiles"))?;
    put("conffiles", &conffiles, 0o644)?;
    for name in SCRIPTS {
        let script = fs::read_to_string(plan.packaging("debian").join(name))?;
        put(name, &script, 0o755)?;
    }
    let file = plan
        .folder
        .join(format!("hapax_{version}_{}.deb", architecture.trim()));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.arg("--root-owner-group")
        .args(plan.compression)
        .arg("--build")
        .args([root, &file])
        .env("SOURCE_DATE_EPOCH", changed_at(plan)?);
    asked(&mut dpkg)?;
    Ok(file)
}

/// The version of the package: the version of the workspace and the revision of the package.
fn version<'a>(changelog: &'a str, workspace: &str) -> anyhow::Result<&'a str> {
    let first = changelog.lines().next().unwrap_or_default();
    let version = first
        .strip_prefix("hapax (")
        .and_then(|rest| rest.split_once(')'));
    let (version, _) =
        version.context("packaging/debian/changelog does not start with a version")?;
    if version.rsplit_once('-').map(|(upstream, _)| upstream) != Some(workspace) {
        bail!("packaging/debian/changelog is for {version}, but the workspace is {workspace}");
    }
    Ok(version)
}

/// The time of the last changelog entry, which is the time of every file of the package.
fn changed_at(plan: &Plan) -> anyhow::Result<String> {
    let mut parse = Command::new("dpkg-parsechangelog");
    parse
        .args(["--show-field", "Timestamp", "--file"])
        .arg(plan.packaging("debian/changelog"));
    Ok(asked(&mut parse)?.trim().to_owned())
}

/// The Debian packages with the libraries of the binary.
fn depends(plan: &Plan, root: &Path) -> anyhow::Result<String> {
    let folder = plan.folder.join("shlibs");
    fs::create_dir_all(folder.join("debian"))?;
    // `dpkg-shlibdeps` requires a source package, but does not use its content.
    let source = "Source: hapax\n\nPackage: hapax\nArchitecture: any\n";
    fs::write(folder.join("debian/control"), source)?;
    let mut shlibs = Command::new("dpkg-shlibdeps");
    shlibs
        .arg("-O")
        .arg(root.join(root::BINARY))
        .current_dir(&folder);
    let said = asked(&mut shlibs)?;
    let depends = said.trim().strip_prefix("shlibs:Depends=");
    Ok(depends
        .context("dpkg-shlibdeps prints no dependencies")?
        .to_owned())
}

/// The files below `root`, and their total size in bytes.
fn files(root: &Path) -> anyhow::Result<(Vec<String>, u64)> {
    let mut find = Command::new("find");
    find.args(["usr", "-type", "f", "-printf", "%s %p\\n"])
        .current_dir(root);
    let listed = asked(&mut find)?;
    let mut files = Vec::new();
    let mut bytes = 0;
    for line in listed.lines() {
        let (size, path) = line.split_once(' ').context("unexpected output of find")?;
        bytes += size.parse::<u64>()?;
        files.push(path.to_owned());
    }
    files.sort();
    Ok((files, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changelog_of_another_version_is_refused() {
        let changelog = "hapax (0.1.0-2) unstable; urgency=medium\n";
        assert_eq!(version(changelog, "0.1.0").unwrap(), "0.1.0-2");
        let error_chain = version(changelog, "0.2.0").unwrap_err().to_string();
        assert!(
            error_chain.ends_with("is for 0.1.0-2, but the workspace is 0.2.0"),
            "{error_chain}"
        );
        assert!(version("", "0.1.0").is_err());
    }
}
