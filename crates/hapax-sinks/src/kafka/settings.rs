//! Settings of the Kafka sink.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{format::Format, secret::Secret};

/// A Kafka topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KafkaSettings {
    /// The bootstrap brokers, as `host:port`.
    pub brokers: Vec<String>,
    /// The topic, as a template: `events.{aggregate_type}`. The placeholders are `{type}`,
    /// `{tenant}`, `{aggregate_type}` and `{aggregate_id}`. If an event lacks a value, and for
    /// characters that a topic cannot contain, `_` is used.
    pub topic: String,
    /// Further properties of librdkafka by name, such as `sasl.password`. Each value may be a
    /// secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, Secret>,
    /// The encoding of events. The default is `binary`.
    #[serde(default)]
    pub format: Format,
}
