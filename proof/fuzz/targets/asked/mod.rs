//! Body types of the admin API, and the merge patch for an edited dead letter.
#![allow(dead_code, reason = "the binary uses the rest")]

#[path = "../../../../crates/hapax-server/src/admin/list_query.rs"]
mod list_query;
#[path = "../../../../crates/hapax/src/admin/patch.rs"]
mod patch;

pub(crate) use list_query::{ListQuery, Many};

/// Merges a patch into a JSON object.
pub(crate) fn merged(text: &str, patch: &str) -> Result<String, &'static str> {
    patch::merged(text, patch)
}
