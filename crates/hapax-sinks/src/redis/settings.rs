//! Settings of the Redis Streams sink.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    format::Format,
    secret::Secret,
    settings::{Address, Compared, is_same},
};

/// A Redis stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RedisSettings {
    /// The URL of the server: `redis://user:password@host:6379/0` or `rediss://...`. User and
    /// password are percent-encoded; `requirepass` sets the password of the user `default`.
    pub url: Secret,
    /// The stream, as a template of `{type}`, `{tenant}`, `{aggregate_type}` and `{aggregate_id}`.
    /// If an event lacks a value, `_` is used. The default is `events`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// The approximate number of entries that the stream keeps, read or unread; unlimited if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length_max: Option<u64>,
    /// A file of certificates (PEM) that are trusted instead of the public ones. It requires
    /// `rediss://`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = "path"))]
    pub ca: Option<PathBuf>,
    /// The encoding of events. The default is `binary`.
    #[serde(default)]
    pub format: Format,
}

impl Address for RedisSettings {
    fn compare_address(&self, before: &Self) -> Compared {
        let Self {
            url,
            ca,
            stream: _,
            length_max: _,
            format: _,
        } = self;
        vec![("url", is_same(url, &before.url)), ("ca", *ca == before.ca)]
    }
}
