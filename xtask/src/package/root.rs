//! The files of the package and their paths.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use super::{Plan, asked, libraries};

/// Completions: the shell, and the path at which Debian looks for them.
pub(super) const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/hapax"),
    ("zsh", "usr/share/zsh/vendor-completions/_hapax"),
    ("fish", "usr/share/fish/vendor_completions.d/hapax.fish"),
];
pub(super) const BINARY: &str = "usr/bin/hapax";
pub(super) const PAGES: &str = "usr/share/man/man1";
pub(super) const UNITS: &str = "usr/lib/systemd/system";
pub(super) const SETTINGS: &str = "etc/hapax/hapax.toml";
pub(super) const GATEWAY_SETTINGS: &str = "etc/hapax/gateway.toml";
/// The services of the package.
pub(super) const SERVICES: [&str; 2] = ["hapax-gateway", "hapax-relay"];
pub(super) const SECRETS: &str = "etc/hapax/secrets";
const SYSUSERS: &str = "usr/lib/sysusers.d/hapax.conf";
const DOCS: &str = "usr/share/doc/hapax";
const OVERRIDES: &str = "usr/share/lintian/overrides/hapax";

/// The comment at the start of the settings file.
const SETTINGS_HEAD: &str = "\
# Settings of hapax, read by hapax-relay.service. Lines that are commented out are defaults or
# examples. Environment variables (HAPAX__SECTION__NAME) override this file.
#
# The URL of the database is a secret. The service reads it from /etc/hapax/secrets/database-url and
# ignores [database] url in this file. Store each further secret in a separate file in that folder,
# add a LoadCredential= line for it with `systemctl edit hapax-relay`, and refer to it here as
# { file = \"/run/credentials/hapax-relay.service/NAME\" }.
";

/// Creates the root folder of the package with all files, and returns its path.
pub(super) fn lay_out(plan: &Plan) -> anyhow::Result<PathBuf> {
    let root = plan.folder.join("root");
    drop(fs::remove_dir_all(&plan.folder));
    fs::create_dir_all(&root)?;
    let binary = root.join(BINARY);
    make_folder_of(&binary)?;
    let mut strip = Command::new("strip");
    asked(
        strip
            .arg("--strip-unneeded")
            .arg("-o")
            .arg(&binary)
            .arg(&plan.binary),
    )?;
    let hapax = |arguments: &[&str]| asked(Command::new(&binary).args(arguments));
    let put = |path: &str, text: &str| {
        let file = root.join(path);
        make_folder_of(&file)?;
        fs::write(&file, text).with_context(|| path.to_owned())
    };
    for (shell, path) in COMPLETIONS {
        put(path, &hapax(&["completions", shell])?)?;
    }
    put(SETTINGS, &settings(&hapax(&["config", "default"])?))?;
    fs::create_dir_all(root.join(SECRETS))?;
    let pages = root.join(PAGES);
    hapax(&["man", "--dir", &pages.to_string_lossy()])?;
    for (name, text) in units(plan)? {
        put(&format!("{UNITS}/{name}"), &text)?;
    }
    let packaging = |file: &str| {
        fs::read_to_string(plan.packaging(file)).with_context(|| format!("packaging/{file}"))
    };
    put(SYSUSERS, &packaging("systemd/hapax.sysusers")?)?;
    put(GATEWAY_SETTINGS, &packaging("debian/gateway.toml")?)?;
    put(OVERRIDES, &packaging("debian/lintian-overrides")?)?;
    put(&format!("{DOCS}/copyright"), &copyright(plan)?)?;
    let debian = packaging("debian/changelog")?;
    put(&format!("{DOCS}/changelog.Debian"), &debian)?;
    let changes = fs::read_to_string(plan.project.join("CHANGELOG.md"))?;
    put(&format!("{DOCS}/changelog"), &changes)?;
    put(&format!("{DOCS}/libraries"), &libraries::listed()?)?;
    for name in ["changelog.Debian", "changelog", "libraries"] {
        compress(&[root.join(DOCS).join(name)])?;
    }
    let pages: Vec<_> = fs::read_dir(&pages)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    compress(&pages)?;
    set_modes(&root)?;
    fs::set_permissions(root.join(SECRETS), fs::Permissions::from_mode(0o700))?;
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))?;
    Ok(root)
}

/// The systemd units: name and text, sorted by name.
pub(super) fn units(plan: &Plan) -> anyhow::Result<Vec<(String, String)>> {
    let mut units = Vec::new();
    for entry in fs::read_dir(plan.packaging("systemd"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".service") {
            units.push((name, fs::read_to_string(entry.path())?));
        }
    }
    units.sort();
    Ok(units)
}

/// The file of defaults, with every default commented out. So a setting that the operator does not
/// change has the default of the installed version, also after an upgrade.
fn settings(defaults: &str) -> String {
    let body = defaults.split_once("\n\n").map_or("", |(_, body)| body);
    let mut text = SETTINGS_HEAD.to_owned() + "\n";
    for line in body.lines() {
        if line.starts_with(|first: char| first.is_ascii_lowercase()) {
            text.push_str("# ");
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// The copyright file, with the text of the one licence that Debian does not provide.
fn copyright(plan: &Plan) -> anyhow::Result<String> {
    let licence = fs::read_to_string(plan.project.join("LICENSE-MIT"))?;
    let indented = licence.trim_end().lines().map(|line| match line.trim() {
        "" => " .".to_owned(),
        line => format!(" {line}"),
    });
    let indented: Vec<_> = indented.collect();
    let text = fs::read_to_string(plan.packaging("debian/copyright"))?;
    Ok(text.replace("@EXPAT@", &indented.join("\n")))
}

fn make_folder_of(file: &Path) -> anyhow::Result<()> {
    let folder = file.parent().context("the file has no parent folder")?;
    fs::create_dir_all(folder)?;
    Ok(())
}

/// Compresses files in place, without time and name, so that builds are reproducible.
fn compress(files: &[PathBuf]) -> anyhow::Result<()> {
    asked(Command::new("gzip").args(["-9", "-n"]).args(files)).map(drop)
}

fn set_modes(folder: &Path) -> anyhow::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            set_modes(&entry.path())?;
        } else {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o644))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_commented_out_and_every_section_stays() {
        let defaults =
            "# Defaults.\n# More.\n\n[relay]\n# How long.\nlease = \"5s\"\n# node = \"a\"\n";
        let text = settings(defaults);
        let body = text.strip_prefix(SETTINGS_HEAD).unwrap();
        let expected = "\n[relay]\n# How long.\n# lease = \"5s\"\n# node = \"a\"\n";
        assert_eq!(body, expected);
    }
}
