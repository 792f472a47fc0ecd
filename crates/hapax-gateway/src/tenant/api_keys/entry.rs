//! Entry of an API key in the configuration or in the file of keys.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What is kept of a key.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyEntry {
    /// The visible part of the key, 12 hexadecimal digits.
    pub id: String,
    /// `sha256:` and the hash of the whole key in hexadecimal.
    pub hash: String,
    /// The tenant of the key.
    pub tenant: String,
    /// When the key expires (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Whether the key is refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disabled: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

impl fmt::Debug for ApiKeyEntry {
    /// Omits the hash.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKeyEntry")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("expires", &self.expires)
            .field("disabled", &self.disabled)
            .finish_non_exhaustive()
    }
}
