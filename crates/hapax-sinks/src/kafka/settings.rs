//! Settings of the Kafka sink.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    format::Format,
    secret::Secret,
    settings::{Address, Compared, is_same},
};

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

impl Address for KafkaSettings {
    fn compare_address(&self, before: &Self) -> Compared {
        let Self {
            brokers,
            properties,
            topic: _,
            format: _,
        } = self;
        // Properties of librdkafka name servers and certificates, too.
        let old = &before.properties;
        let is_known = |(name, now): (&String, &Secret)| {
            let old = old.get(name);
            old.is_some_and(|old| is_same(now, old))
        };
        let are_same = properties.len() == old.len() && properties.iter().all(is_known);
        vec![
            ("brokers", *brokers == before.brokers),
            ("properties", are_same),
        ]
    }
}
