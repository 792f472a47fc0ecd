//! Settings of the Pub/Sub sink.

use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    format::Format,
    network::networks,
    secret::Secret,
    settings::{Address, Compared},
};

/// The URL of Google's service.
const GOOGLE: &str = "https://pubsub.googleapis.com";

/// A topic of Google Cloud Pub/Sub, or of an emulator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PubsubSettings {
    /// The topic, such as `projects/shop/topics/events`.
    pub topic: String,
    /// The URL of the service, without a path, such as that of a region or of an emulator. The
    /// default is `https://pubsub.googleapis.com`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The key of a service account: the JSON document that Google issues. It may be absent only if
    /// there is an endpoint, which is then an emulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<Secret>,
    /// Whether a message has its aggregate as ordering key. The default is false.
    #[serde(default)]
    pub ordering: bool,
    /// Networks outside the public internet that the sink may connect to, such as `10.0.0.0/8`.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "networks"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub allow: Vec<IpNet>,
    /// A file of certificates (PEM or DER) that are trusted in addition to the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = "path"))]
    pub ca: Option<PathBuf>,
    /// The encoding of events. The default is `binary`.
    #[serde(default)]
    pub format: Format,
}

impl PubsubSettings {
    /// The URL of the service: `endpoint`, or that of Google.
    pub fn url(&self) -> &str {
        self.endpoint.as_deref().unwrap_or(GOOGLE)
    }
}

impl Address for PubsubSettings {
    fn compare_address(&self, before: &Self) -> Compared {
        let Self {
            topic,
            endpoint,
            allow,
            ca,
            service_account: _,
            ordering: _,
            format: _,
        } = self;
        // The topic has the project.
        vec![
            ("topic", *topic == before.topic),
            ("endpoint", *endpoint == before.endpoint),
            ("allow", *allow == before.allow),
            ("ca", *ca == before.ca),
        ]
    }
}
