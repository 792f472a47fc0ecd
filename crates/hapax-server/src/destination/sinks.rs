//! The settings of each kind of sink: what a person writes down, as it stands.
//!
//! Nothing is connected to here. What a sink does with its settings is said in
//! `hapax_sinks`, one module for each kind; a kind that this build has not is
//! read all the same, and refused by name when it is wired.

use std::{collections::BTreeMap, path::PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Secret;

/// Where a destination's events go: one kind, with its settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sink {
    /// An HTTP endpoint, by Standard Webhooks.
    Webhook(Webhook),
    /// A mail server.
    Smtp(Smtp),
    /// A NATS JetStream.
    Nats(Nats),
    /// A RabbitMQ exchange.
    Amqp(Amqp),
    /// A Kafka topic.
    Kafka(Kafka),
    /// A Redis stream.
    Redis(Redis),
    /// The inbox and a table of another PostgreSQL database.
    Postgres(Postgres),
    /// JSON Lines in a file of the relay's machine, or on its standard output.
    File(File),
}

/// How an event is written down for a broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// CloudEvents 1.0, its attributes in the protocol's headers.
    #[default]
    Binary,
    /// CloudEvents 1.0, the whole event as one JSON text.
    Structured,
    /// The payload as it is.
    Raw,
}

/// An HTTP endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    /// Where to post.
    pub(crate) url: String,
    /// What signs: `whsec_...` or `whsk_...`.
    #[schema(value_type = String)]
    pub(crate) secret: Secret,
    /// What signs beside it until `previous_until`: the old key of a rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) previous_secret: Option<Secret>,
    /// Until when the old key signs, as RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) previous_until: Option<jiff::Timestamp>,
    /// Networks outside the public internet that may be dialled, such as `10.0.0.0/8`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub(crate) allow: Vec<IpNet>,
    /// A file of certificates (PEM) that are trusted beside the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) ca: Option<PathBuf>,
}

/// A mail server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Smtp {
    /// The server: `smtp://user:password@host:587` or `smtps://...`.
    #[schema(value_type = String)]
    pub(crate) url: Secret,
    /// Who sends: `Name <address>`.
    pub(crate) from: String,
    /// Who receives, as a template over the event: `{{ data.email }}`.
    pub(crate) recipient: String,
    /// The directory of the templates.
    #[schema(value_type = String)]
    pub(crate) templates: PathBuf,
    /// The template of each event type.
    pub(crate) mails: BTreeMap<String, String>,
    /// A file of certificates (PEM) that are trusted beside the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) ca: Option<PathBuf>,
}

/// A NATS JetStream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nats {
    /// The server: `nats://host:4222` or `tls://host:4222`.
    #[schema(value_type = String)]
    pub(crate) url: Secret,
    /// The subject, as a template: `events.{type}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    /// Who connects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// The user's password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) password: Option<Secret>,
    /// A token instead of user and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) token: Option<Secret>,
    /// A file of certificates (PEM) that are trusted beside the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) ca: Option<PathBuf>,
    /// How events are written down.
    #[serde(default)]
    pub(crate) format: Format,
}

/// A RabbitMQ exchange.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Amqp {
    /// The server: `amqp://user:password@host:5672/vhost` or `amqps://...`.
    #[schema(value_type = String)]
    pub(crate) url: Secret,
    /// The exchange; the default one when empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) exchange: String,
    /// The routing key, as a template: `{type}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) routing_key: Option<String>,
    /// A file of certificates (PEM) that are trusted beside the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) ca: Option<PathBuf>,
    /// How events are written down.
    #[serde(default)]
    pub(crate) format: Format,
}

/// A Kafka topic.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kafka {
    /// The brokers to begin with, as `host:port`.
    pub(crate) brokers: Vec<String>,
    /// The topic, as a template: `events.{aggregate_type}`.
    pub(crate) topic: String,
    /// Further settings of librdkafka, by its own names; each may be a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>)]
    pub(crate) properties: BTreeMap<String, Secret>,
    /// How events are written down.
    #[serde(default)]
    pub(crate) format: Format,
}

/// A Redis stream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redis {
    /// The server: `redis://user:password@host:6379/0` or `rediss://...`.
    #[schema(value_type = String)]
    pub(crate) url: Secret,
    /// The stream, as a template: `events.{aggregate_type}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stream: Option<String>,
    /// About how many entries the stream keeps; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) length_max: Option<u64>,
    /// A file of certificates (PEM) that are trusted beside the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) ca: Option<PathBuf>,
    /// How events are written down.
    #[serde(default)]
    pub(crate) format: Format,
}

/// The inbox and a table of another PostgreSQL database.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Postgres {
    /// The database: `postgres://user:password@host:5432/database`.
    #[schema(value_type = String)]
    pub(crate) url: Secret,
    /// The name under which the far inbox takes events.
    pub(crate) consumer: String,
    /// The table that gets a row for each event, such as `public.incoming_event`.
    pub(crate) table: String,
    /// A file of certificates (PEM) that are trusted beside the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) ca: Option<PathBuf>,
    /// The columns whose names are not those of the fields.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) columns: BTreeMap<Field, String>,
    /// The fields that the table has no column for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) without: Vec<Field>,
}

/// What of an event goes into a column.
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
    /// The file that is appended to; `-` is standard output.
    #[schema(value_type = String)]
    pub(crate) path: PathBuf,
}

impl Sink {
    /// Its kind, which is also the name of its feature.
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

    /// The file of certificates that it trusts.
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

    /// Every secret that it holds, by the name of its setting.
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
