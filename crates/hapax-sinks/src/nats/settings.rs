//! Settings of the NATS sink.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    format::Format,
    secret::Secret,
    settings::{Address, Compared, is_same},
};

/// NATS JetStream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NatsSettings {
    /// The URL of the server: `nats://host:4222` or `tls://host:4222`. Several are separated by
    /// commas.
    pub url: Secret,
    /// The subject, as a template of `{type}`, `{tenant}`, `{aggregate_type}` and `{aggregate_id}`.
    /// If an event lacks a value, `_` is used. The default is `events.{type}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The user. It requires `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// A token instead of user and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// A file of certificates (PEM) that are trusted in addition to the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = "path"))]
    pub ca: Option<PathBuf>,
    /// The encoding of events. The default is `binary`.
    #[serde(default)]
    pub format: Format,
}

impl Address for NatsSettings {
    fn compare_address(&self, before: &Self) -> Compared {
        let Self {
            url,
            user,
            ca,
            subject: _,
            password: _,
            token: _,
            format: _,
        } = self;
        vec![
            ("url", is_same(url, &before.url)),
            ("user", *user == before.user),
            ("ca", *ca == before.ca),
        ]
    }
}
