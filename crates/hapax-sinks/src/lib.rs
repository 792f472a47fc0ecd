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
//! | `s3` | `s3` | objects of JSON Lines in S3 or a service like it | `id` of each line |
//! | `sqs` | `sqs` | a queue of Amazon SQS | attribute `id` |
//! | `sns` | `sns` | a topic of Amazon SNS | attribute `id` |
//! | `pubsub` | `pubsub` | a topic of Google Cloud Pub/Sub | attribute `ce-id` |
//!
//! A sink is created from its settings, such as `webhook::WebhookSettings`, which can also be parsed
//! from a configuration file, and from the [settings](settings::DestinationSettings) of its
//! destination.
//!
//! `endpoints`, with the feature of the same name, sends the webhooks of [endpoints of
//! tenants](hapax::endpoint).
//!
//! A sink sends events and reports the outcome of each. It never retries, waits or keeps state
//! about events: schedules and retries belong to the relay.

pub mod secret;
pub mod resolve;
pub mod format;
pub mod limits;
mod json_setting;
mod network;
pub mod settings;
#[cfg(feature = "webhook")]
pub mod webhook;
#[cfg(feature = "endpoints")]
pub mod endpoints;
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
#[cfg(feature = "s3")]
pub mod s3;
#[cfg(feature = "sqs")]
pub mod sqs;
#[cfg(feature = "sns")]
pub mod sns;
#[cfg(feature = "pubsub")]
pub mod pubsub;
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
#[cfg(any(feature = "s3", feature = "sqs", feature = "sns", feature = "pubsub"))]
mod api;
#[cfg(any(feature = "s3", feature = "sqs", feature = "sns"))]
mod aws;
#[cfg(any(
    feature = "webhook",
    feature = "smtp",
    feature = "nats",
    feature = "redis",
    feature = "amqp",
    feature = "postgres"
))]
mod tls;
#[cfg(test)]
mod sample;

#[cfg(all(doctest, feature = "webhook"))]
#[doc = include_str!("../README.md")]
struct Readme;
