//! What the admin API asks its bodies for, and the merge patch of an edited dead letter.
#![allow(dead_code, reason = "the binary uses the rest")]

#[path = "../../../../crates/hapax-server/src/admin/list_query.rs"]
mod list_query;
#[path = "../../../../crates/hapax-postgres/src/admin/patch.rs"]
mod patch;

pub(crate) use list_query::{ListQuery, Many};

/// A JSON object with a patch merged into it.
pub(crate) fn merged(text: &str, patch: &str) -> Result<String, &'static str> {
    patch::merged(text, patch)
}
