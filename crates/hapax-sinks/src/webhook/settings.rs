//! Settings of the webhook sink.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use hapax::{Timestamp, sink::PayloadMode};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    json_setting::JsonSetting,
    network::networks,
    secret::Secret,
    settings::{Address, Compared},
};

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
    /// Further previous keys, each with the time until which it signs. A configuration file has no setting
    /// for them.
    #[serde(skip)]
    pub further_previous: Vec<(Secret, Timestamp)>,
    /// Networks outside the public internet that the webhook may connect to, such as `10.0.0.0/8`.
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
    /// Headers of every request beside those of the signature, by name. The values are secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Secret>,
    /// The parts of an event in requests: `full`, or `thin` for its id and a link. The default is `full`.
    #[serde(default, skip_serializing_if = "is_full")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub payload: PayloadMode,
    /// The beginning of the links, such as `https://events.example.com/events`, if `payload` is `thin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_url: Option<String>,
    /// A template that makes the whole body of each request, such as `{"text": "$.data.message"}`, or the
    /// same as JSON in a string. It cannot be combined with `payload = "thin"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub mapping: Option<JsonSetting>,
    /// HTTP basic authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic: Option<BasicSettings>,
    /// OAuth 2.0 with the credentials of a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OauthSettings>,
    /// The certificate that is presented to the endpoint (mTLS). It requires an https URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<ClientCertificateSettings>,
}

/// HTTP basic authentication (RFC 7617).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BasicSettings {
    /// The user, without a colon.
    pub user: String,
    /// The password.
    pub password: Secret,
}

/// OAuth 2.0 with the credentials of a client (RFC 6749, 4.4).
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OauthSettings {
    /// The URL of the token endpoint. It must not contain a user or a password. The settings `allow`
    /// and `ca` of the webhook apply.
    pub token_url: String,
    /// The id of the client.
    pub client_id: String,
    /// The secret of the client.
    pub client_secret: Secret,
    /// The scopes that are requested, separated by spaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The audience that is requested, for servers that need one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// How the client authenticates at the token endpoint. The default is `basic`.
    #[serde(default)]
    pub auth_style: AuthStyle,
}

/// How a client authenticates at the token endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum AuthStyle {
    /// By HTTP basic.
    #[default]
    Basic,
    /// By `client_id` and `client_secret` in the body.
    Body,
}

/// A certificate of the client with its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClientCertificateSettings {
    /// The certificate (PEM), followed by those of the intermediate authorities.
    pub certificate: Secret,
    /// The private key (PEM: PKCS#8, PKCS#1 or SEC 1), without a passphrase.
    pub key: Secret,
}

impl Address for WebhookSettings {
    fn compare_address(&self, before: &Self) -> Compared {
        let Self {
            url,
            allow,
            ca,
            basic,
            oauth,
            secret: _,
            previous_secret: _,
            previous_until: _,
            further_secrets: _,
            further_previous: _,
            headers: _,
            payload: _,
            events_url: _,
            mapping: _,
            client_certificate: _,
        } = self;
        let mut compared = vec![
            ("url", *url == before.url),
            ("allow", *allow == before.allow),
            ("ca", *ca == before.ca),
        ];
        if let (Some(now), Some(before)) = (basic, &before.basic) {
            let BasicSettings { user, password: _ } = now;
            compared.push(("basic.user", *user == before.user));
        }
        if let (Some(now), Some(before)) = (oauth, &before.oauth) {
            let OauthSettings {
                token_url,
                client_id,
                client_secret: _,
                scope: _,
                audience: _,
                auth_style: _,
            } = now;
            compared.push(("oauth.token_url", *token_url == before.token_url));
            compared.push(("oauth.client_id", *client_id == before.client_id));
        }
        compared
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_full(payload: &PayloadMode) -> bool {
    *payload == PayloadMode::Full
}

impl fmt::Debug for OauthSettings {
    /// Omits the URL, because paths and queries can contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OauthSettings")
            .field("client_id", &self.client_id)
            .field("scope", &self.scope)
            .field("audience", &self.audience)
            .field("auth_style", &self.auth_style)
            .finish_non_exhaustive()
    }
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
