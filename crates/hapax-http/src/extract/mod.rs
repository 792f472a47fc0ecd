//! Extractors whose refusals are problems.
//!
//! They replace axum's extractors of the same names. They refuse an invalid request with a 400 that
//! names the member, where axum responds with a line of text. To refuse unknown members, use a type
//! with `#[serde(deny_unknown_fields)]`.

mod json;
mod by_name;
mod uri;

pub use json::{Json, from_json};
pub(crate) use uri::read_query;
pub use uri::{Path, Query};
