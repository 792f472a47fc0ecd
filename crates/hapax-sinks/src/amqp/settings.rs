//! Settings of the RabbitMQ sink.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    format::Format,
    secret::Secret,
    settings::{Address, Compared, is_same},
};

/// A RabbitMQ exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AmqpSettings {
    /// The URL of the server: `amqp://user:password@host:5672/vhost` or `amqps://...`. User,
    /// password and virtual host are percent-encoded. `?heartbeat=10` sets the heartbeat interval
    /// in seconds.
    pub url: Secret,
    /// The exchange; the default exchange if empty, whose routing keys are names of queues.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub exchange: String,
    /// The routing key, as a template of `{type}`, `{tenant}`, `{aggregate_type}` and
    /// `{aggregate_id}`. If an event lacks a value, `_` is used. The default is `{type}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_key: Option<String>,
    /// A file of certificates (PEM) that are trusted in addition to the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = "path"))]
    pub ca: Option<PathBuf>,
    /// The encoding of events. The default is `binary`.
    #[serde(default)]
    pub format: Format,
}

impl Address for AmqpSettings {
    fn compare_address(&self, before: &Self) -> Compared {
        let Self {
            url,
            ca,
            exchange: _,
            routing_key: _,
            format: _,
        } = self;
        vec![("url", is_same(url, &before.url)), ("ca", *ca == before.ca)]
    }
}
