//! `cargo x money`: the crash matrix of payments, refunds and checkouts, every case of it.
//!
//! The cases are tests of the shop, where one in ten is run. Here all of them are, on both
//! stores, and the table says for each what the providers' ledgers held in the end.

use anyhow::{Context as _, bail};

use crate::step::from_a_shell;

/// Runs it.
pub(crate) fn money() -> anyhow::Result<()> {
    let ran = from_a_shell("cargo")
        .args(["test", "--package", "shop", "--test", "it"])
        .args(["--", "money::", "--nocapture", "--test-threads", "1"])
        .env("HAPAX_MONEY", "full")
        .status()
        .context("cargo cannot be run")?;
    if !ran.success() {
        bail!("somebody's books do not agree");
    }
    Ok(())
}
