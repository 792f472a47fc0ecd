//! Extractors whose refusals are problems.
//!
//! They stand in for axum's own of the same names: what they refuse is 400 and
//! names the member, where axum answers a line of text. Unknown members are
//! refused by types with `#[serde(deny_unknown_fields)]`.

mod json;
mod by_name;
mod uri;

pub use json::{Json, from_json};
pub(crate) use uri::read_query;
pub use uri::{Path, Query};
