//! Settings of the S3 sink.

use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    format::TextFormat,
    network::networks,
    secret::Secret,
    settings::{Address, Compared},
};

/// A bucket of Amazon S3, or of a service with the same API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct S3Settings {
    /// The URL of the service, such as `https://s3.eu-central-1.amazonaws.com`. It must not contain
    /// a user, a password or a path.
    pub endpoint: String,
    /// The region that requests are signed for, such as `eu-central-1`. Other services than Amazon's
    /// document which one they expect.
    pub region: String,
    /// The bucket, which must exist.
    pub bucket: String,
    /// The beginning of the names of all objects, such as `shop/events`. The default is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The id of the access key.
    pub access_key_id: String,
    /// The secret of the access key.
    pub secret_access_key: Secret,
    /// The session token of temporary credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<Secret>,
    /// Whether the bucket is in the path and not in the host name. The default is false for hosts of
    /// `amazonaws.com` and buckets without a dot, otherwise true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_style: Option<bool>,
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
    /// The content of a line. The default is `structured`.
    #[serde(default)]
    pub format: TextFormat,
}

impl Address for S3Settings {
    fn compare_address(&self, before: &Self) -> Compared {
        let Self {
            endpoint,
            region,
            bucket,
            access_key_id,
            path_style,
            allow,
            ca,
            prefix: _,
            secret_access_key: _,
            session_token: _,
            format: _,
        } = self;
        // The bucket can be a part of the host name.
        vec![
            ("endpoint", *endpoint == before.endpoint),
            ("region", *region == before.region),
            ("bucket", *bucket == before.bucket),
            ("access_key_id", *access_key_id == before.access_key_id),
            ("path_style", *path_style == before.path_style),
            ("allow", *allow == before.allow),
            ("ca", *ca == before.ca),
        ]
    }
}
