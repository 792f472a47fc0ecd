//! Sinks: where the relay delivers events. Each kind has a module and a feature.
//!
//! | module | feature | receiver | deduplicates by |
//! |---|---|---|---|
//! | `webhook` | `webhook` | any HTTP endpoint, by Standard Webhooks | `webhook-id` |
//! | `smtp` | `smtp` | any mail server | `Message-ID`, `X-Event-Id` |
//! | `handler` | `handler` | a function in this process | an inbox row |
//! | `file` | `file` | JSON Lines in a file or on stdout | `id` |
//! | `nats` | `nats` | NATS JetStream | `Nats-Msg-Id` |
//! | `redis` | `redis` | Redis Streams | field `id` |
//! | `amqp` | `amqp` | RabbitMQ | `message_id` |
//! | `kafka` | `kafka` | Kafka | header `ce_id` |
//! | `postgres` | `postgres` | another service's inbox and a table there | its inbox row |
//!
//! A sink is created from its settings, such as `webhook::WebhookSettings`, which can also be parsed
//! from a configuration file, and from the [settings](settings::DestinationSettings) of its
//! destination.
//!
//! A sink sends events and reports the outcome of each. It never retries, waits or keeps state
//! about events: schedules and retries belong to the relay.

pub mod secret;
pub mod resolve;
pub mod format;
pub mod limits;
pub mod settings;
#[cfg(feature = "webhook")]
pub mod webhook;
#[cfg(feature = "smtp")]
pub mod smtp;
#[cfg(feature = "handler")]
pub mod handler;
#[cfg(feature = "file")]
pub mod file;

#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "amqp")]
pub mod amqp;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(
    feature = "nats",
    feature = "redis",
    feature = "amqp",
    feature = "kafka"
))]
mod pattern;
#[cfg(any(
    feature = "nats",
    feature = "redis",
    feature = "amqp",
    feature = "postgres"
))]
mod connection;
#[cfg(any(
    feature = "webhook",
    feature = "smtp",
    feature = "nats",
    feature = "redis",
    feature = "amqp",
    feature = "postgres"
))]
mod tls;

#[cfg(all(doctest, feature = "webhook"))]
#[doc = include_str!("../README.md")]
struct Readme;
