//! Checks of the systemd units: their syntax, their exposure, and the commands that they start.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, bail, ensure};

use super::{Plan, asked, root};

/// Maximum exposure of a unit: tenths of the level that `systemd-analyze security` prints.
const EXPOSURE_MAX: &str = "--threshold=20";

/// Checks every unit with the unpacked binary.
pub(super) fn check(plan: &Plan, binary: &Path) -> anyhow::Result<()> {
    let folder = plan.folder.join("units");
    fs::create_dir_all(&folder)?;
    let units = root::units(plan)?;
    let names: Vec<_> = units.iter().map(|(name, _)| name.as_str()).collect();
    let expected = root::SERVICES.map(|name| format!("{name}.service"));
    ensure!(
        names == expected,
        "the units are {names:?}, expected {expected:?}"
    );
    for (name, text) in units {
        let installed = format!("/{}", root::BINARY);
        let verb = verb(&text, &installed).with_context(|| name.clone())?;
        asked(Command::new(binary).args([verb, "--help"]))
            .with_context(|| format!("{name} starts `hapax {verb}`"))?;
        let file = folder.join(&name);
        let here = binary.to_str().context("the target directory is UTF-8")?;
        fs::write(&file, text.replace(&installed, here))?;
        verify(&file).with_context(|| name.clone())?;
        let mut security = Command::new("systemd-analyze");
        security
            .args(["security", "--offline=true", "--no-pager", EXPOSURE_MAX])
            .arg(&file);
        let said = asked(&mut security)?;
        let level = said.lines().find(|line| line.contains("exposure level"));
        println!("    {}", level.unwrap_or_default().trim());
    }
    Ok(())
}

/// Fails if `systemd-analyze verify` prints a warning, even if it succeeds.
fn verify(file: &Path) -> anyhow::Result<()> {
    let mut verify = Command::new("systemd-analyze");
    let output = verify.args(["verify", "--man=no"]).arg(file).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && said.is_empty(),
        "systemd-analyze reports: {said}"
    );
    Ok(())
}

/// The command of `hapax` that a unit starts.
fn verb<'a>(unit: &'a str, binary: &str) -> anyhow::Result<&'a str> {
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let mut words = start.unwrap_or_default().split_whitespace();
    match (words.next(), words.next()) {
        (Some(program), Some(verb)) if program == binary => Ok(verb),
        _ => bail!("ExecStart does not start a command of {binary}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_starts_a_verb() {
        let unit = "[Service]\nExecStart=/usr/bin/hapax relay --config x\n";
        assert_eq!(verb(unit, "/usr/bin/hapax").unwrap(), "relay");
        assert!(verb("ExecStart=/bin/sh -c x\n", "/usr/bin/hapax").is_err());
        assert!(verb("", "/usr/bin/hapax").is_err());
    }

    #[test]
    fn what_systemd_does_not_understand_is_found() {
        let folder = std::env::temp_dir().join(format!("units-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("hapax-test.service");
        let unit = "[Service]\nExecStart=/bin/true\nNoNewPrivilege=yes\n";
        fs::write(&file, unit).unwrap();
        let error_chain = verify(&file).unwrap_err().to_string();
        assert!(error_chain.contains("NoNewPrivilege"), "{error_chain}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
