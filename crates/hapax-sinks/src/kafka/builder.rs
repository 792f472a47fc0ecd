//! Builder of a Kafka sink, which checks the settings.
//!
//! The client itself parses them, so a setting that it does not know, or that this build does not
//! support (TLS, SCRAM, Kerberos), is refused at start. It is not checked whether the cluster can
//! be reached.

use std::{collections::BTreeMap, fmt, sync::Mutex, time::Duration};

use hapax::limits::OFFER;
use rdkafka::error::KafkaError as ClientError;
use secrecy::{ExposeSecret as _, SecretString};

use super::{Kafka, Layout, Settings, client::OURS, record::is_topic};
use crate::{format::Format, pattern::Pattern};

/// The settings of a [`Kafka`] sink.
#[derive(Clone)]
pub struct KafkaBuilder {
    servers: String,
    source: String,
    topic: String,
    format: Format,
    others: BTreeMap<String, SecretString>,
    timeout: Duration,
}

impl KafkaBuilder {
    pub(super) fn new(servers: String) -> Self {
        Self {
            servers,
            source: String::new(),
            topic: "{type}".to_owned(),
            format: Format::default(),
            others: BTreeMap::new(),
            timeout: OFFER,
        }
    }

    /// Sets the CloudEvents attribute `source`, such as `/shop`.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Sets the topic, a pattern of `{type}`, `{aggregate_type}`, `{aggregate_id}` and `{tenant}`.
    /// If an event lacks one, and for characters that a topic cannot contain, `_` is used. The
    /// default is `{type}`.
    #[must_use]
    pub fn topic(mut self, pattern: impl Into<String>) -> Self {
        self.topic = pattern.into();
        self
    }

    /// Sets the encoding of events. The default is CloudEvents in binary mode.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Sets a property of librdkafka, such as `sasl.password`.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.others.insert(name.into(), value.into().into());
        self
    }

    /// Sets the timeout of a whole call. Events that are not acknowledged by then are unavailable.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Builds the sink.
    ///
    /// # Errors
    /// Fails if a setting is not valid. The error names it.
    pub fn build(self) -> Result<Kafka, KafkaError> {
        if self.servers.trim().is_empty() {
            return Err(KafkaError::Servers);
        }
        if self.format != Format::Raw && self.source.is_empty() {
            return Err(KafkaError::Source);
        }
        let topic = Pattern::parse(&self.topic).ok_or(KafkaError::Topic)?;
        if !is_topic(&topic.sample()) {
            return Err(KafkaError::Topic);
        }
        if let Some(name) = self
            .others
            .keys()
            .find(|name| OURS.contains(&name.as_str()))
        {
            return Err(KafkaError::Ours { name: name.clone() });
        }
        let partitioner = self.others.get("partitioner");
        if partitioner.is_some_and(|it| it.expose_secret().trim() == "random") {
            return Err(KafkaError::Partitioner);
        }
        let settings = Settings {
            timeout: self.timeout,
            others: self.others,
        };
        settings.check(&self.servers)?;
        Ok(Kafka {
            servers: self.servers,
            settings,
            layout: Layout {
                source: self.source,
                topic,
                format: self.format,
            },
            timeout: self.timeout,
            many: Mutex::default(),
            alone: Mutex::default(),
        })
    }
}

impl fmt::Debug for KafkaBuilder {
    /// Prints the names of the properties without their values, which may be passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaBuilder")
            .field("servers", &self.servers)
            .field("source", &self.source)
            .field("topic", &self.topic)
            .field("format", &self.format)
            .field("settings", &self.others.keys())
            .finish_non_exhaustive()
    }
}

/// Why a Kafka sink cannot be built. The error never contains the value of a property.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KafkaError {
    /// There is no broker.
    #[error("kafka sink has no servers")]
    Servers,
    /// The source, which CloudEvents require, is missing.
    #[error("kafka sink has no source")]
    Source,
    /// The pattern of the topic contains an unknown placeholder or is not a valid topic name.
    #[error(
        "kafka topic must consist of a-z, A-Z, 0-9, `.`, `_`, `-`, {{type}}, {{aggregate_type}}, \
         {{aggregate_id}} and {{tenant}}"
    )]
    Topic,
    /// The property cannot be changed, because the guarantees of the sink depend on it.
    #[error("kafka setting {name} is set by the sink and cannot be changed")]
    Ours {
        /// The name of the property.
        name: String,
    },
    /// Events of one aggregate would be sent to different partitions.
    #[error(
        "kafka partitioner `random` ignores the key, so that an aggregate's events would not be \
         in order: choose another one, such as `consistent_random`"
    )]
    Partitioner,
    /// The client does not know the property or does not accept its value.
    #[error(
        "kafka setting {name} is unknown, or its value is refused, or this build does not support it"
    )]
    Setting {
        /// The name of the property.
        name: String,
    },
    /// The client cannot be created with these properties.
    #[error("kafka client cannot be created: {error_chain}")]
    Client {
        /// The message of the client.
        error_chain: String,
    },
}

impl KafkaError {
    /// The message of the client, without the values that it contains.
    pub(super) fn of(error: &ClientError) -> Self {
        match error {
            ClientError::ClientConfig(_, _, name, _) => Self::Setting { name: name.clone() },
            ClientError::ClientCreation(error_chain) => Self::Client {
                error_chain: error_chain.clone(),
            },
            other => Self::Client {
                error_chain: other.to_string(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_can_never_work_is_refused_by_name() {
        let good = Kafka::to("h:9092").source("/s");
        assert!(good.clone().build().is_ok());
        check(Kafka::to(" ").source("/s"), &KafkaError::Servers);
        check(Kafka::to("h"), &KafkaError::Source);
        for topic in ["", "{id}", "a b", "..", &"x".repeat(250)] {
            check(good.clone().topic(topic), &KafkaError::Topic);
        }
        let random = good.clone().set("partitioner", "random");
        check(random, &KafkaError::Partitioner);
        let by_key = good.clone().set("partitioner", "consistent_random");
        assert!(by_key.build().is_ok());
        for name in [
            "acks",
            "delivery.report.only.error",
            "enable.idempotence",
            "transactional.id",
        ] {
            let name = name.to_owned();
            check(good.clone().set(&name, "1"), &KafkaError::Ours { name });
        }
        for (name, value) in [("no.such.setting", "1"), ("linger.ms", "soon")] {
            let name = name.to_owned();
            check(
                good.clone().set(&name, value),
                &KafkaError::Setting { name },
            );
        }
    }

    #[test]
    fn what_this_build_has_no_part_for_is_refused_at_start() {
        let good = Kafka::to("h:9092").source("/s");
        let plain = good.clone().set("security.protocol", "sasl_plaintext");
        let plain = plain
            .set("sasl.username", "u")
            .set("sasl.password", "s3cret");
        assert!(plain.clone().set("sasl.mechanism", "PLAIN").build().is_ok());
        for builder in [
            good.set("security.protocol", "ssl"),
            plain.clone().set("sasl.mechanism", "SCRAM-SHA-512"),
            plain.set("sasl.mechanism", "GSSAPI"),
        ] {
            let error = builder.build().unwrap_err();
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let builder = Kafka::to("h:9092")
            .source("/s")
            .set("sasl.password", "s3cret");
        let text = format!("{builder:?} {:?}", builder.clone().build().unwrap());
        assert!(!text.contains("s3cret"), "{text}");
        assert!(text.contains("sasl.password"), "{text}");
    }

    #[track_caller]
    fn check(builder: KafkaBuilder, expected: &KafkaError) {
        assert_eq!(&builder.build().unwrap_err(), expected);
    }
}
