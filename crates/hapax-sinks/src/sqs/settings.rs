//! Settings of the SQS sink.

use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    format::TextFormat,
    network::networks,
    secret::Secret,
    settings::{Address, Compared},
};

/// A queue of Amazon SQS, or of a service with the same API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SqsSettings {
    /// The URL of the queue, such as
    /// `https://sqs.eu-central-1.amazonaws.com/123456789012/events.fifo`. If it ends in `.fifo`, the
    /// order of each aggregate is kept in the queue, and the queue drops duplicates.
    pub queue_url: String,
    /// The region that requests are signed for, such as `eu-central-1`.
    pub region: String,
    /// The id of the access key.
    pub access_key_id: String,
    /// The secret of the access key.
    pub secret_access_key: Secret,
    /// The session token of temporary credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<Secret>,
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
    /// The content of a message. The default is `structured`.
    #[serde(default)]
    pub format: TextFormat,
}

impl Address for SqsSettings {
    fn compare_address(&self, before: &Self) -> Compared {
        let Self {
            queue_url,
            region,
            access_key_id,
            allow,
            ca,
            secret_access_key: _,
            session_token: _,
            format: _,
        } = self;
        vec![
            ("queue_url", *queue_url == before.queue_url),
            ("region", *region == before.region),
            ("access_key_id", *access_key_id == before.access_key_id),
            ("allow", *allow == before.allow),
            ("ca", *ca == before.ca),
        ]
    }
}
