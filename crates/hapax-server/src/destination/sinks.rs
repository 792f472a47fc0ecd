//! The sink of a declaration: its kind with the settings of `hapax_sinks`.
//!
//! No connection is opened here. A kind that this build does not include is parsed, and refused by
//! name when the sink is built.

use std::path::PathBuf;

use hapax_sinks::settings::{
    AmqpSettings, FileSettings, KafkaSettings, NatsSettings, PostgresSettings, RedisSettings,
    SmtpSettings, WebhookSettings,
};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Secret;

/// The sink of a destination: one kind with its settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sink {
    /// An HTTP endpoint that receives Standard Webhooks.
    Webhook(WebhookSettings),
    /// A mail server.
    Smtp(SmtpSettings),
    /// NATS JetStream.
    Nats(NatsSettings),
    /// A RabbitMQ exchange.
    Amqp(AmqpSettings),
    /// A Kafka topic.
    Kafka(KafkaSettings),
    /// A Redis stream.
    Redis(RedisSettings),
    /// The inbox and a table of another PostgreSQL database.
    Postgres(PostgresSettings),
    /// JSON Lines in a file on the relay's machine, or on its standard output.
    File(FileSettings),
}

impl Sink {
    /// The kind, which is also the name of the feature.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Smtp(_) => "smtp",
            Self::Nats(_) => "nats",
            Self::Amqp(_) => "amqp",
            Self::Kafka(_) => "kafka",
            Self::Redis(_) => "redis",
            Self::Postgres(_) => "postgres",
            Self::File(_) => "file",
        }
    }

    /// The URLs of the receiver, separated by commas, and the port of a URL without a port. A
    /// secret that cannot be read is omitted.
    pub(crate) fn urls(&self) -> (String, u16) {
        let (secret, tls, port, tls_port) = match self {
            Self::Webhook(it) => {
                let port = if it.url.starts_with("https") { 443 } else { 80 };
                return (it.url.clone(), port);
            }
            Self::Kafka(it) => return (it.brokers.join(","), 9092),
            Self::File(_) => return (String::new(), 0),
            Self::Smtp(it) => (&it.url, "smtps", 587, 465),
            Self::Nats(it) => (&it.url, "tls", 4222, 4222),
            Self::Amqp(it) => (&it.url, "amqps", 5672, 5671),
            Self::Redis(it) => (&it.url, "rediss", 6379, 6379),
            Self::Postgres(it) => (&it.url, "postgres", 5432, 5432),
        };
        let url = secret.reveal().unwrap_or_default();
        let url = url.expose_secret().to_owned();
        let port = if url.starts_with(tls) { tls_port } else { port };
        (url, port)
    }

    /// The file of trusted certificates.
    pub(crate) fn ca(&self) -> Option<&PathBuf> {
        match self {
            Self::Webhook(it) => it.ca.as_ref(),
            Self::Smtp(it) => it.ca.as_ref(),
            Self::Nats(it) => it.ca.as_ref(),
            Self::Amqp(it) => it.ca.as_ref(),
            Self::Redis(it) => it.ca.as_ref(),
            Self::Postgres(it) => it.ca.as_ref(),
            Self::Kafka(_) | Self::File(_) => None,
        }
    }

    /// All secrets by the name of their setting.
    pub(crate) fn secrets_mut(&mut self) -> Vec<(String, &mut Secret)> {
        let named = |name: &str, secret| (name.to_owned(), secret);
        let mut all = Vec::new();
        match self {
            Self::Webhook(it) => {
                all.push(named("secret", &mut it.secret));
                all.extend(
                    it.previous_secret
                        .iter_mut()
                        .map(|it| named("previous_secret", it)),
                );
            }
            Self::Nats(it) => {
                all.push(named("url", &mut it.url));
                all.extend(it.password.iter_mut().map(|it| named("password", it)));
                all.extend(it.token.iter_mut().map(|it| named("token", it)));
            }
            Self::Kafka(it) => {
                let properties = it.properties.iter_mut();
                all.extend(properties.map(|(name, it)| (format!("properties.{name}"), it)));
            }
            Self::Smtp(it) => all.push(named("url", &mut it.url)),
            Self::Amqp(it) => all.push(named("url", &mut it.url)),
            Self::Redis(it) => all.push(named("url", &mut it.url)),
            Self::Postgres(it) => all.push(named("url", &mut it.url)),
            Self::File(_) => {}
        }
        all
    }
}
