//! Checks of a package: its content, and that the unpacked files work.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

use super::{Plan, asked, root, units};

/// Folders that may contain files of the package.
const PLACES: [&str; 2] = ["./etc/hapax/", "./usr/"];

/// Checks the archive and the unpacked files.
pub(super) fn all(plan: &Plan, file: &Path) -> anyhow::Result<()> {
    let info = asked(Command::new("dpkg-deb").arg("--info").arg(file))?;
    let contents = asked(Command::new("dpkg-deb").arg("--contents").arg(file))?;
    whole(&info, &contents)?;
    let root = plan.folder.join("unpacked");
    fs::create_dir_all(&root)?;
    asked(Command::new("dpkg-deb").arg("-x").args([file, &root]))?;
    let binary = root.join(root::BINARY);
    runs(plan, &root, &binary)?;
    let verbs = verbs(&asked(Command::new(&binary).arg("--help"))?);
    pages(plan, &root, &verbs)?;
    completions(&root, &verbs)?;
    units::check(plan, &binary)?;
    let mut lintian = Command::new("lintian");
    lintian
        .args(["--allow-root", "--fail-on", "error", "--suppress-tags"])
        // This tag concerns packages that are uploaded to the Debian archive.
        .arg("initial-upload-closes-no-bugs")
        .arg(file);
    print!("{}", asked(&mut lintian)?);
    Ok(())
}

/// Checks fields, paths, modes and owners.
fn whole(info: &str, contents: &str) -> anyhow::Result<()> {
    for field in ["Package: hapax", "libc6 (>= ", "conffiles"] {
        ensure!(info.contains(field), "the package has no `{field}`: {info}");
    }
    for line in contents.lines() {
        let mut words = line.split_whitespace();
        let (mode, owner) = (words.next().unwrap_or_default(), words.next());
        let path = words.nth(3).unwrap_or_default();
        ensure!(
            owner == Some("root/root"),
            "{path} is not owned by root: {line}"
        );
        ensure!(
            PLACES
                .iter()
                .any(|place| path.starts_with(place) || place.starts_with(path)),
            "{path} is outside of the folders of the package"
        );
        let expected = match path {
            "./usr/bin/hapax" => "-rwxr-xr-x",
            "./etc/hapax/secrets/" => "drwx------",
            folder if folder.ends_with('/') => "drwxr-xr-x",
            _ => "-rw-r--r--",
        };
        ensure!(
            mode == expected,
            "{path} has the mode {mode}, not {expected}"
        );
    }
    let has = |path: &str| contents.lines().any(|line| line.ends_with(path));
    let docs = "./usr/share/doc/hapax";
    let mut wanted: Vec<String> = [root::BINARY, root::SETTINGS, root::GATEWAY_SETTINGS]
        .iter()
        .chain(root::COMPLETIONS.iter().map(|(_, path)| path))
        .map(|path| format!("./{path}"))
        .collect();
    let services = root::SERVICES.iter();
    wanted.extend(services.map(|name| format!("./{}/{name}.service", root::UNITS)));
    for name in [
        "copyright",
        "changelog.gz",
        "changelog.Debian.gz",
        "libraries.gz",
    ] {
        wanted.push(format!("{docs}/{name}"));
    }
    let missing: Vec<_> = wanted.iter().filter(|path| !has(path)).collect();
    ensure!(missing.is_empty(), "the package lacks {missing:?}");
    Ok(())
}

/// Checks that the unpacked binary prints its version and accepts the settings of the package.
fn runs(plan: &Plan, root: &Path, binary: &Path) -> anyhow::Result<()> {
    let said = asked(Command::new(binary).arg("--version"))?;
    let expected = format!("hapax {}", plan.version);
    ensure!(
        said.trim() == expected,
        "`hapax --version` prints {said:?}, expected {expected:?}"
    );
    for file in [root::SETTINGS, root::GATEWAY_SETTINGS] {
        let mut check = Command::new(binary);
        check
            .args([
                "config",
                "check",
                "--database",
                "postgres://db/a",
                "--config",
            ])
            .arg(root.join(file))
            .env_clear();
        asked(&mut check).with_context(|| file.to_owned())?;
    }
    Ok(())
}

/// Checks that every command has a manual page, and that groff prints no warning about the pages.
fn pages(plan: &Plan, root: &Path, verbs: &[String]) -> anyhow::Result<()> {
    let folder = plan.folder.join("pages");
    fs::create_dir_all(&folder)?;
    let mut pages: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(root.join(root::PAGES))? {
        let path = entry?.path();
        let name = path.file_stem().context("a page has a name")?.to_owned();
        let text = asked(Command::new("gzip").arg("-dc").arg(&path))?;
        fs::write(folder.join(&name), text)?;
        pages.push(folder.join(name));
    }
    for verb in verbs {
        let page = folder.join(format!("hapax-{verb}.1"));
        ensure!(page.exists(), "`hapax {verb}` has no manual page");
    }
    let mut groff = Command::new("groff");
    groff.args(["-man", "-Tutf8", "-ww", "-z"]).args(&pages);
    let output = groff.output().context("cannot run groff")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && said.is_empty(),
        "groff reports: {said}"
    );
    Ok(())
}

/// Checks that the completions contain every command, and that the installed shells accept them.
fn completions(root: &Path, verbs: &[String]) -> anyhow::Result<()> {
    for (shell, path) in root::COMPLETIONS {
        let path = root.join(path);
        let text = fs::read_to_string(&path)?;
        let missing: Vec<_> = verbs.iter().filter(|verb| !text.contains(*verb)).collect();
        ensure!(missing.is_empty(), "{shell} does not complete {missing:?}");
        let is_there = Command::new(shell).args(["-c", ":"]).status().is_ok();
        if is_there {
            asked(Command::new(shell).arg("-n").arg(&path))?;
        }
    }
    Ok(())
}

/// The commands that a help text lists.
fn verbs(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| line.starts_with("  "));
    let names = listed.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = " Package: hapax\n Depends: libc6 (>= 2.34)\n 22 bytes, 1 lines conffiles\n";

    fn contents(more: &str) -> String {
        let line = |mode: &str, path: &str| {
            format!("{mode} root/root         0 2026-11-21 12:00 ./{path}\n")
        };
        let mut text = line("drwxr-xr-x", "") + &line("drwxr-xr-x", "etc/");
        text += &line("-rwxr-xr-x", root::BINARY);
        text += &line("drwx------", "etc/hapax/secrets/");
        for path in [
            root::SETTINGS,
            root::GATEWAY_SETTINGS,
            "usr/lib/systemd/system/hapax-gateway.service",
            "usr/lib/systemd/system/hapax-relay.service",
        ] {
            text += &line("-rw-r--r--", path);
        }
        for (_, path) in root::COMPLETIONS {
            text += &line("-rw-r--r--", path);
        }
        for name in [
            "copyright",
            "changelog.gz",
            "changelog.Debian.gz",
            "libraries.gz",
        ] {
            text += &line("-rw-r--r--", &format!("usr/share/doc/hapax/{name}"));
        }
        text + more
    }

    #[test]
    fn a_package_that_lacks_a_file_or_has_one_with_a_wrong_mode_is_refused() {
        whole(INFO, &contents("")).unwrap();
        let refused = |info: &str, contents: &str, why: &str| {
            let error_chain = whole(info, contents).unwrap_err().to_string();
            assert!(error_chain.contains(why), "{error_chain}");
        };
        refused("", &contents(""), "has no `Package: hapax`");
        let lacks = contents("").replace("copyright", "copy");
        refused(INFO, &lacks, "lacks [\"./usr/share/doc/hapax/copyright\"]");
        let lacks = contents("").replace("hapax-gateway.service", "gateway.service");
        refused(INFO, &lacks, "/hapax-gateway.service\"]");
        let open = contents("").replace("drwx------", "drwxr-xr-x");
        refused(INFO, &open, "./etc/hapax/secrets/ has the mode drwxr-xr-x");
        let more = "-rw-r--r-- root/root 0 2026-11-21 12:00 ./opt/hapax\n";
        refused(INFO, &contents(more), "./opt/hapax is outside");
        let more = "-rw-r--r-- ann/ann 0 2026-11-21 12:00 ./usr/share/x\n";
        refused(INFO, &contents(more), "is not owned by root");
    }

    #[test]
    fn the_verbs_are_those_of_the_help_text() {
        let help = "About.\n\nUsage: hapax\n\nCommands:\n  relay  Carries\n  dead-letters  Looks\n  \
            help   Prints\n\nOptions:\n  -h  Help\n";
        assert_eq!(verbs(help), ["relay", "dead-letters"]);
    }
}
