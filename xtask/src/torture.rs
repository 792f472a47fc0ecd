//! `cargo x torture`: kills all processes under load, repeatedly, and then checks their records.
//!
//! The program `torture` does this with the programs that are in the same folder. `bugs` uses a
//! separate build that contains the seeded bugs. `upgrade` also builds another revision.

use std::{path::Path, process::Command};

use anyhow::{Context as _, bail};

use crate::{contract, step::from_a_shell};

const BUILT: &str = "build --quiet -p torture -p shop -p hapax-server -p providers";
/// Target directory of the build with seeded bugs, which has other compiler flags.
const SEEDED: &str = "target/seeded";

/// The folder in which another release is checked out and built.
const PREVIOUS: &str = "target/previous";
const PARTS: [&str; 4] = ["bugs", "check", "minimize", "power"];

/// Builds and runs `torture`. The arguments are those of `torture run`; or the name of another
/// command and its arguments; or `upgrade`, a revision, and the arguments of `torture run`.
pub(crate) fn torture(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    contract::oracles(root)?;
    let (part, rest) = match arguments.split_first() {
        Some((part, rest)) if PARTS.contains(&part.as_str()) => (part.as_str(), rest),
        Some((part, rest)) if part == "upgrade" => return upgrade(root, rest),
        _ => ("run", arguments),
    };
    let mut folder = contract::target()?;
    let is_seeded = part == "bugs" || rest.iter().any(|it| it == "--bug");
    if is_seeded {
        folder = folder.join("seeded");
    }
    build(root, is_seeded.then_some(SEEDED), is_seeded)?;
    torment(&folder, part, rest)
}

/// A run in which shops and relays change to another release and back.
fn upgrade(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let Some((revision, rest)) = arguments.split_first() else {
        bail!("torture upgrade takes the revision of a release and the flags of torture run");
    };
    let sources = root.join(PREVIOUS).join("source");
    if !sources.is_dir() {
        let mut checkout = from_a_shell("git");
        checkout
            .args(["clone", "--quiet", "--shared"])
            .arg(root)
            .arg(&sources);
        succeeds(checkout, "cannot clone the project")?;
    }
    // A release may have been tagged since the clone.
    let mut fetch = from_a_shell("git");
    fetch
        .arg("-C")
        .arg(&sources)
        .args(["fetch", "--quiet", "--force", "--tags", "origin"]);
    succeeds(fetch, "cannot fetch the tags of the project")?;
    let mut checkout = from_a_shell("git");
    checkout
        .arg("-C")
        .arg(&sources)
        .args(["checkout", "--quiet", "--detach", revision]);
    succeeds(checkout, "cannot check out the revision")?;
    build(
        &sources,
        Some(&format!("{}/{PREVIOUS}", root.display())),
        false,
    )?;
    build(root, None, false)?;
    let previous = root.join(PREVIOUS).join("debug").display().to_string();
    let flags = [rest, &["--previous".to_owned(), previous]].concat();
    torment(&contract::target()?, "run", &flags)
}

fn build(root: &Path, target: Option<&str>, is_seeded: bool) -> anyhow::Result<()> {
    let mut build = from_a_shell("cargo");
    build.args(BUILT.split(' ')).current_dir(root);
    if is_seeded {
        build.env("RUSTFLAGS", "--cfg hapax_seeded");
    }
    build.envs(target.map(|target| ("CARGO_TARGET_DIR", target)));
    succeeds(build, "cannot build the programs under test")
}

fn torment(folder: &Path, part: &str, flags: &[String]) -> anyhow::Result<()> {
    let mut torture = from_a_shell(&folder.join("debug/torture").display().to_string());
    torture.arg(part).args(flags);
    succeeds(torture, "the torture run failed")
}

fn succeeds(mut command: Command, otherwise: &'static str) -> anyhow::Result<()> {
    let name = command.get_program().display().to_string();
    let status = command
        .status()
        .with_context(|| format!("{name} cannot be run"))?;
    if !status.success() {
        bail!(otherwise);
    }
    Ok(())
}
