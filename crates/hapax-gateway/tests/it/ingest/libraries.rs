//! The providers' own libraries, which sign and judge requests in this run.
//!
//! The libraries are pinned in `tests/vectors/packages.txt`, and are installed next to the build by
//! the client of their registry. The seed and the time differ from those of the recorded requests.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{self, Command},
};

use hapax_testkit::clock::system_clock;

use super::cases::check;

const PACKAGES: &str = include_str!("../../vectors/packages.txt");

#[test]
fn requests_are_judged_as_the_libraries_of_the_providers_judge_them() {
    let now = system_clock().now();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/make.mjs");
    let mut node = Command::new("node");
    node.arg(script)
        .arg(now.as_millis().to_string())
        .arg(now.as_secs().to_string())
        .env("NODE_PATH", installed().join("node_modules"));
    let made = node.output().expect("node is installed (Debian: nodejs)");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
    check(&String::from_utf8(made.stdout).unwrap());
}

/// Installs the libraries once, without what they need for other things than signatures. Another
/// test may have installed them first.
fn installed() -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = PACKAGES.trim_end().chars().map(plain).collect();
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = home.join(&name);
    if !place.exists() {
        let ours = home.join(format!("{name}.{}", process::id()));
        fs::create_dir_all(&ours).unwrap();
        let mut npm = Command::new("npm");
        npm.args(["pack", "--silent", "--pack-destination"])
            .arg(&ours)
            .args(PACKAGES.lines());
        run(npm, "npm (Debian: npm)");
        for package in PACKAGES.lines() {
            unpack(package, &ours);
        }
        if fs::rename(&ours, &place).is_err() {
            fs::remove_dir_all(&ours).unwrap();
        }
    }
    place
}

/// Unpacks `NAME@VERSION` into the folder in which Node looks for it.
fn unpack(package: &str, to: &Path) {
    let (name, version) = package.rsplit_once('@').unwrap();
    let file = name.trim_start_matches('@').replace('/', "-");
    let folder = to.join("node_modules").join(name);
    fs::create_dir_all(&folder).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xzf")
        .arg(to.join(format!("{file}-{version}.tgz")))
        .args(["--strip-components", "1", "-C"])
        .arg(folder);
    run(tar, "tar");
}

fn run(mut command: Command, needed: &str) {
    let done = command.output();
    let done = done.unwrap_or_else(|error| panic!("install {needed}: {error}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {said}");
}
