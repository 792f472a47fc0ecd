//! `cargo x fleet`: a hundred clients against a shop that is down for half a minute.
//!
//! The run is also a test of the shop, with a short outage, which `--short` selects here.
//! `--release` builds shop and clients with optimisation.

use anyhow::{Context as _, bail};

use crate::step::from_a_shell;

const SECONDS: &str = "30";
const SHORT_SECONDS: &str = "5";

/// Runs the task.
pub(crate) fn fleet(arguments: &[String]) -> anyhow::Result<()> {
    let mut command = from_a_shell("cargo");
    command.args(["test", "-p", "shop", "--test", "fleet"]);
    let mut seconds = SECONDS;
    for argument in arguments {
        match argument.as_str() {
            "--short" => seconds = SHORT_SECONDS,
            "--release" => {
                command.arg("--release");
            }
            _ => bail!("fleet takes --short and --release"),
        }
    }
    let ran = command
        .args(["--", "--nocapture"])
        .env("HAPAX_FLEET_SECONDS", seconds)
        .status()
        .context("cargo cannot be run")?;
    if !ran.success() {
        bail!("the run failed");
    }
    Ok(())
}
