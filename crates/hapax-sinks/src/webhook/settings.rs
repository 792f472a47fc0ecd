//! Settings of the webhook sink.

use std::{fmt, path::PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// An HTTP endpoint.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WebhookSettings {
    /// The URL that events are posted to. It must not contain a user or a password.
    pub url: String,
    /// The signing key: `whsec_...` or `whsk_...`.
    pub secret: Secret,
    /// The previous signing key, which also signs until `previous_until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_secret: Option<Secret>,
    /// Until when the previous key signs (RFC 3339), usually 24 hours after a rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub previous_until: Option<jiff::Timestamp>,
    /// Further keys that sign every request. A configuration file has no setting for them.
    #[serde(skip)]
    pub further_secrets: Vec<Secret>,
    /// Networks outside the public internet that the webhook may connect to, such as `10.0.0.0/8`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub allow: Vec<IpNet>,
    /// A file of certificates (PEM or DER) that are trusted in addition to the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = "path"))]
    pub ca: Option<PathBuf>,
}

impl fmt::Debug for WebhookSettings {
    /// Omits the URL, because paths and queries of webhooks contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSettings")
            .field("allow", &self.allow)
            .field("ca", &self.ca)
            .finish_non_exhaustive()
    }
}
