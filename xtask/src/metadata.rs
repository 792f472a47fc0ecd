//! The packages of the workspace, as cargo describes them.

use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// The output of `cargo metadata` for the packages of the workspace.
pub(crate) fn metadata() -> anyhow::Result<Value> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata ended with {}", output.status);
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
