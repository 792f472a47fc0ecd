//! Settings of the SNS sink.

use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    format::TextFormat,
    network::networks,
    secret::Secret,
    settings::{Address, Compared},
};

/// A topic of Amazon SNS, or of a service with the same API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SnsSettings {
    /// The ARN of the topic, such as `arn:aws:sns:eu-central-1:123456789012:events.fifo`. Requests
    /// are signed for its region. If it ends in `.fifo`, the order of each aggregate is kept in the
    /// topic, and the topic drops duplicates.
    pub topic_arn: String,
    /// The URL of the service, without a path. The default is that of Amazon in the region of the
    /// topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
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

impl SnsSettings {
    /// The URL of the service: `endpoint`, or that of Amazon in the region of the topic. It is empty
    /// if there is no endpoint and the ARN is not that of a region whose URL is known.
    pub fn url(&self) -> String {
        let of_region = || {
            let mut parts = self.topic_arn.split(':').skip(1);
            let domain = match parts.next()? {
                "aws" | "aws-us-gov" => "amazonaws.com",
                "aws-cn" => "amazonaws.com.cn",
                _ => return None,
            };
            let region = parts.nth(1).filter(|region| is_region(region))?;
            Some(format!("https://sns.{region}.{domain}"))
        };
        let endpoint = self.endpoint.clone();
        endpoint.or_else(of_region).unwrap_or_default()
    }
}

impl Address for SnsSettings {
    fn compare_address(&self, before: &Self) -> Compared {
        let Self {
            topic_arn,
            endpoint,
            access_key_id,
            allow,
            ca,
            secret_access_key: _,
            session_token: _,
            format: _,
        } = self;
        // The ARN has the region, which decides the host.
        vec![
            ("topic_arn", *topic_arn == before.topic_arn),
            ("endpoint", *endpoint == before.endpoint),
            ("access_key_id", *access_key_id == before.access_key_id),
            ("allow", *allow == before.allow),
            ("ca", *ca == before.ca),
        ]
    }
}

/// Whether the text can be a region: a label of a host name.
fn is_region(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_that_of_the_region_unless_there_is_an_endpoint() {
        let of = |topic_arn: &str, endpoint: Option<&str>| {
            let settings = SnsSettings {
                topic_arn: topic_arn.to_owned(),
                endpoint: endpoint.map(str::to_owned),
                ..SnsSettings::default()
            };
            settings.url()
        };
        for (topic_arn, url) in [
            (
                "arn:aws:sns:eu-central-1:123456789012:events",
                "https://sns.eu-central-1.amazonaws.com",
            ),
            (
                "arn:aws-cn:sns:cn-north-1:123456789012:events",
                "https://sns.cn-north-1.amazonaws.com.cn",
            ),
            (
                "arn:aws-us-gov:sns:us-gov-west-1:123456789012:events",
                "https://sns.us-gov-west-1.amazonaws.com",
            ),
            ("arn:aws-iso:sns:us-iso-east-1:123456789012:events", ""),
            ("arn:aws:sns:a.example.com/?:123456789012:events", ""),
            ("arn:aws:sns::123456789012:events", ""),
            ("events", ""),
            ("", ""),
        ] {
            assert_eq!(of(topic_arn, None), url, "{topic_arn}");
            let other = "http://10.0.0.1:4566";
            assert_eq!(of(topic_arn, Some(other)), other);
        }
    }
}
