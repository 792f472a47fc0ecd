//! Fences checker: a relay that has lost a partition writes nothing under its old epoch.

use super::{Violation, violated};
use crate::artifacts::Artifacts;

pub(super) fn violations(artifacts: &Artifacts) -> Option<Violation> {
    let late = |sample: &serde_json::Value| sample["disk"]["fenced"].as_u64().unwrap_or_default();
    let most = artifacts.sizes.iter().map(late).max().unwrap_or_default();
    let what = format!("{most} checkpoints were written by a relay that had lost the partition");
    (most > 0).then(|| violated(10, what))
}
