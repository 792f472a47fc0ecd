//! `cargo x money`: the complete crash matrix of payments, refunds and checkouts.
//!
//! The cases are tests of the shop, which usually run one case in ten. This task runs all of them
//! on both stores, and prints for each what the ledgers of the providers contained at the end.

use anyhow::{Context as _, bail};

use crate::step::from_a_shell;

/// Runs the task.
pub(crate) fn money() -> anyhow::Result<()> {
    let ran = from_a_shell("cargo")
        .args(["test", "--package", "shop", "--test", "it"])
        .args(["--", "money::", "--nocapture", "--test-threads", "1"])
        .env("HAPAX_MONEY", "full")
        .status()
        .context("cargo cannot be run")?;
    if !ran.success() {
        bail!("at least one case failed");
    }
    Ok(())
}
