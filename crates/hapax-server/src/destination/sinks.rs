//! Settings of every kind of sink, as written in a declaration.
//!
//! No connection is opened here. The effect of the settings is documented in `hapax_sinks`, which
//! has a module for every kind. A kind that this build does not include is parsed, and refused by
//! name when the sink is built.

use std::{collections::BTreeMap, path::PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Secret;

/// The sink of a destination: one kind with its settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sink {
    /// An HTTP endpoint that receives Standard Webhooks.
    Webhook(Webhook),
    /// A mail server.
    Smtp(Smtp),
    /// NATS JetStream.
    Nats(Nats),
    /// A RabbitMQ exchange.
    Amqp(Amqp),
    /// A Kafka topic.
    Kafka(Kafka),
    /// A Redis stream.
    Redis(Redis),
    /// The inbox and a table of another PostgreSQL database.
    Postgres(Postgres),
    /// JSON Lines in a file on the relay's machine, or on its standard output.
    File(File),
}

/// The encoding of an event for a broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// CloudEvents 1.0, with its attributes in the headers of the protocol.
    #[default]
    Binary,
    /// CloudEvents 1.0, with the whole event as one JSON text.
    Structured,
    /// The payload alone.
    Raw,
}

/// An HTTP endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    /// The URL that events are posted to.
    pub(crate) url: String,
    /// The signing key: `whsec_...` or `whsk_...`.
    #[schema(value_type = String)]
    pub(crate) secret: Secret,
    /// The previous signing key, which also signs until `previous_until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) previous_secret: Option<Secret>,
    /// Until when the previous key signs (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) previous_until: Option<jiff::Timestamp>,
    /// Networks outside the public internet that the webhook may connect to, such as `10.0.0.0/8`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub(crate) allow: Vec<IpNet>,
    /// A file of certificates (PEM) that are trusted in addition to the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) ca: Option<PathBuf>,
}

/// A mail server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Smtp {
    /// The URL of the server: `smtp://user:password@host:587` or `smtps://...`.
    #[schema(value_type = String)]
    pub(crate) url: Secret,
    /// The sender: `Name <address>`.
    pub(crate) from: String,
    /// The recipient, as a template over the event: `{{ data.email }}`.
    pub(crate) recipient: String,
    /// The directory of the templates.
    #[schema(value_type = String)]
    pub(crate) templates: PathBuf,
    /// The template for each event type.
    pub(crate) mails: BTreeMap<String, String>,
    /// A file of certificates (PEM) that are trusted in addition to the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) ca: Option<PathBuf>,
}

/// NATS JetStream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nats {
    /// The URL of the server: `nats://host:4222` or `tls://host:4222`.
    #[schema(value_type = String)]
    pub(crate) url: Secret,
    /// The subject, as a template: `events.{type}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    /// The user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// The password of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) password: Option<Secret>,
    /// A token instead of user and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) token: Option<Secret>,
    /// A file of certificates (PEM) that are trusted in addition to the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) ca: Option<PathBuf>,
    /// The encoding of events.
    #[serde(default)]
    pub(crate) format: Format,
}

/// A RabbitMQ exchange.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Amqp {
    /// The URL of the server: `amqp://user:password@host:5672/vhost` or `amqps://...`.
    #[schema(value_type = String)]
    pub(crate) url: Secret,
    /// The exchange; the default exchange if empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) exchange: String,
    /// The routing key, as a template: `{type}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) routing_key: Option<String>,
    /// A file of certificates (PEM) that are trusted in addition to the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) ca: Option<PathBuf>,
    /// The encoding of events.
    #[serde(default)]
    pub(crate) format: Format,
}

/// A Kafka topic.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kafka {
    /// The bootstrap brokers, as `host:port`.
    pub(crate) brokers: Vec<String>,
    /// The topic, as a template: `events.{aggregate_type}`.
    pub(crate) topic: String,
    /// Further properties of librdkafka by name. Each value may be a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>)]
    pub(crate) properties: BTreeMap<String, Secret>,
    /// The encoding of events.
    #[serde(default)]
    pub(crate) format: Format,
}

/// A Redis stream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redis {
    /// The URL of the server: `redis://user:password@host:6379/0` or `rediss://...`.
    #[schema(value_type = String)]
    pub(crate) url: Secret,
    /// The stream, as a template: `events.{aggregate_type}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stream: Option<String>,
    /// The approximate number of entries that the stream keeps; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) length_max: Option<u64>,
    /// A file of certificates (PEM) that are trusted in addition to the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) ca: Option<PathBuf>,
    /// The encoding of events.
    #[serde(default)]
    pub(crate) format: Format,
}

/// The inbox and a table of another PostgreSQL database.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Postgres {
    /// The URL of the database: `postgres://user:password@host:5432/database`.
    #[schema(value_type = String)]
    pub(crate) url: Secret,
    /// The consumer name in the inbox of that database.
    pub(crate) consumer: String,
    /// The table that receives a row for each event, such as `public.incoming_event`.
    pub(crate) table: String,
    /// A file of certificates (PEM) that are trusted in addition to the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) ca: Option<PathBuf>,
    /// The columns whose names differ from the names of the fields.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) columns: BTreeMap<Field, String>,
    /// The fields for which the table has no column.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) without: Vec<Field>,
}

/// A field of an event that is stored in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Field {
    EventId,
    Type,
    Tenant,
    AggregateType,
    AggregateId,
    Sequence,
    Payload,
    Headers,
    CreatedAt,
}

/// JSON Lines.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// The file that events are appended to; `-` is standard output.
    #[schema(value_type = String)]
    pub(crate) path: PathBuf,
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
