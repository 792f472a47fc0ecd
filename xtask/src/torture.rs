//! `cargo x torture`: kills all processes under load, repeatedly, and then checks their records.
//! `cargo x money`, `cargo x fleet` and `cargo x brokers` are scenarios of it.
//!
//! The program `torture` does this with the programs that are in the same folder. `bugs` and `--bug`
//! use the build of a copy that contains the seeded bugs. `upgrade` also builds another revision.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::{mutants, packages, step::from_a_shell};

const BUILD: &str = "build --quiet -p torture -p shop -p hapax-server -p providers";
/// Has the same features as the steps before it in the gate, so that the dependencies are compiled.
const CHECK: &str = "check --quiet --workspace --all-targets --all-features";
/// The folder in the target directory with the copy that contains the seeded bugs, and its build.
const SEEDED: &str = "seeded";
/// The folder in which another release is checked out and built.
const PREVIOUS: &str = "target/previous";
const PARTS: [&str; 5] = ["bugs", "check", "minimize", "power", "scenario"];
/// The receivers of the correctness run, with the one that needs a feature.
const SINKS: &str = "webhook,nats,amqp,redis,kafka";
const KAFKA: &str = " --features torture/kafka,hapax-server/kafka";
/// A flag for an optimised build, which has no failpoints.
const RELEASE: &str = "--release";

/// Builds and runs `torture`. The arguments are those of `torture run`; or the name of another
/// command and its arguments; or `upgrade`, a revision, and the arguments of `torture run`.
pub(crate) fn torture(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    packages::oracles(root)?;
    let (part, rest) = match arguments.split_first() {
        Some((part, rest)) if PARTS.contains(&part.as_str()) => (part.as_str(), rest),
        Some((part, rest)) if part == "upgrade" => return upgrade(root, rest),
        _ => ("run", arguments),
    };
    let (release, rest): (Vec<_>, Vec<_>) = rest.iter().cloned().partition(|it| it == RELEASE);
    let profile = if release.is_empty() {
        "debug"
    } else {
        RELEASE.trim_start_matches('-')
    };
    let mut line = [&[BUILD.to_owned()], &release[..]].concat().join(" ");
    if rest.iter().any(|it| it.contains("kafka")) {
        line.push_str(KAFKA);
    }
    let is_bug = |flag: &String| flag == "--bug" || flag.starts_with("--bug=");
    let folder = if part == "bugs" || rest.iter().any(is_bug) {
        seeded(root)?
    } else {
        let folder = packages::target()?;
        cargo(&line, root, &folder)?;
        folder
    };
    execute(&folder.join(profile), part, &rest)
}

/// The crash matrix of payments, refunds and checkouts on both stores.
pub(crate) fn money(root: &Path) -> anyhow::Result<()> {
    ["sqlite", "postgres"].into_iter().try_for_each(|store| {
        let words = ["scenario", "money", "--store", store];
        torture(root, &words.map(str::to_owned))
    })
}

/// The correctness run: relays that are killed while they deliver to every kind of broker.
pub(crate) fn brokers(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let mut words = ["scenario", "brokers"].map(str::to_owned).to_vec();
    words.extend_from_slice(arguments);
    if !arguments.iter().any(|it| it.starts_with("--sinks")) {
        words.push(format!("--sinks={SINKS}"));
    }
    torture(root, &words)
}

/// A hundred clients against a shop that is down: for half a minute, or for 5 s with `--short`.
pub(crate) fn fleet(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let mut words = vec!["scenario".to_owned(), "fleet".to_owned()];
    for argument in arguments {
        match argument.as_str() {
            "--short" => words.push("--seconds=5".to_owned()),
            RELEASE => words.push(RELEASE.to_owned()),
            _ => bail!("fleet takes --short and --release"),
        }
    }
    torture(root, &words)
}

/// Builds the copy that contains the seeded bugs, and returns its target directory.
pub(crate) fn seeded(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = packages::target()?.join(SEEDED);
    let source = folder.join("source");
    mutants::copy(root, &source)?;
    cargo(BUILD, &source, &folder)?;
    Ok(folder)
}

/// Compiles the copy that contains the seeded bugs, in the target directory of the project, which
/// has the dependencies already.
pub(crate) fn check_mutants(root: &Path) -> anyhow::Result<()> {
    let folder = packages::target()?;
    let source = folder.join(SEEDED).join("source");
    mutants::copy(root, &source)?;
    cargo(CHECK, &source, &folder)
}

/// A run in which shops and relays change to another release and back.
fn upgrade(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let Some((revision, rest)) = arguments.split_first() else {
        bail!("torture upgrade takes the revision of a release and the flags of torture run");
    };
    let folder = root.join(PREVIOUS);
    let sources = folder.join("source");
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
    cargo(BUILD, &sources, &folder)?;
    let target = packages::target()?;
    cargo(BUILD, root, &target)?;
    let previous = folder.join("debug").display().to_string();
    let flags = [rest, &["--previous".to_owned(), previous]].concat();
    execute(&target.join("debug"), "run", &flags)
}

fn cargo(line: &str, root: &Path, target: &Path) -> anyhow::Result<()> {
    let mut cargo = from_a_shell("cargo");
    cargo.args(line.split(' ')).current_dir(root);
    cargo.env("CARGO_TARGET_DIR", target);
    succeeds(cargo, "cannot build the programs under test")
}

fn execute(folder: &Path, part: &str, flags: &[String]) -> anyhow::Result<()> {
    let mut torture = from_a_shell(&folder.join("torture").display().to_string());
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
