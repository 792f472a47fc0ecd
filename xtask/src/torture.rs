//! `cargo x torture`: everything is killed, again and again, and then the books are compared.
//!
//! The run itself is the program `torture`, which tortures what is built beside it. With `bugs`, that is
//! a build of its own: one that has the bugs which are planted on purpose.

use std::path::Path;

use anyhow::{Context as _, bail};

use crate::{contract, step::from_a_shell};

const BUILT: &str = "build --quiet -p torture -p shop -p hapax-server -p providers";
/// Where the build with bugs goes: its flags are other ones, for every dependency.
const SEEDED: &str = "target/seeded";

/// Builds and runs it; the arguments are those of `torture run`, or `bugs` and those of that.
pub(crate) fn torture(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    contract::oracles(root)?;
    let (part, rest) = match arguments.split_first() {
        Some((part, rest)) if ["bugs", "judge"].contains(&part.as_str()) => (part.as_str(), rest),
        _ => ("run", arguments),
    };
    let mut build = from_a_shell("cargo");
    build.args(BUILT.split(' '));
    let mut folder = contract::target()?;
    if part == "bugs" {
        folder = folder.join("seeded");
        build.env("RUSTFLAGS", "--cfg hapax_seeded");
        build.env("CARGO_TARGET_DIR", SEEDED);
    }
    if !build.status().context("cargo cannot be run")?.success() {
        bail!("what is to be tortured cannot be built");
    }
    let mut torture = from_a_shell(&folder.join("debug/torture").display().to_string());
    let ended = torture.arg(part).args(rest).status();
    if !ended.context("torture cannot be run")?.success() {
        bail!("the run does not hold");
    }
    Ok(())
}
