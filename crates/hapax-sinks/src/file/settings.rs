//! Settings of the JSON Lines sink.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// JSON Lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FileSettings {
    /// The file that events are appended to; `-` is standard output.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = "path"))]
    pub path: PathBuf,
}
