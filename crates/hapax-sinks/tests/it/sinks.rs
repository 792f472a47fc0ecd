//! Sinks for the tests: those of an address, with what differs from the default settings.

use std::time::Duration;

use hapax::Clock;
use hapax_sinks::{
    amqp::{Amqp, AmqpSettings},
    kafka::{Kafka, KafkaSettings},
    nats::{Nats, NatsSettings},
    postgres::{Postgres, PostgresSettings},
    pubsub::{Pubsub, PubsubSettings},
    redis::{Redis, RedisSettings},
    s3::{S3, S3Settings},
    secret::Secret,
    settings::DestinationSettings,
    sns::{Sns, SnsSettings},
    sqs::{Sqs, SqsSettings},
    webhook::{Webhook, WebhookSettings},
};
use hapax_testkit::moto::REGION;

use crate::events::clock;

/// The key of [`webhook`].
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A destination with the default settings.
pub(crate) fn destination() -> DestinationSettings {
    DestinationSettings::new("/test")
}

/// A destination with another timeout than the default.
pub(crate) fn within(timeout: Duration) -> DestinationSettings {
    DestinationSettings {
        timeout,
        ..destination()
    }
}

/// A webhook that may connect to this machine.
pub(crate) fn webhook(
    url: &str,
    destination: DestinationSettings,
    change: impl FnOnce(&mut WebhookSettings),
) -> Webhook {
    webhook_at(clock(), url, destination, change)
}

/// A webhook with another clock than the one that stands still.
pub(crate) fn webhook_at(
    clock: Clock,
    url: &str,
    destination: DestinationSettings,
    change: impl FnOnce(&mut WebhookSettings),
) -> Webhook {
    let mut settings = WebhookSettings {
        url: url.to_owned(),
        secret: SECRET.into(),
        allow: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        ..WebhookSettings::default()
    };
    change(&mut settings);
    Webhook::new(&settings, destination, clock).unwrap()
}

pub(crate) fn nats(
    url: impl Into<Secret>,
    destination: DestinationSettings,
    change: impl FnOnce(&mut NatsSettings),
) -> Nats {
    let mut settings = NatsSettings {
        url: url.into(),
        ..NatsSettings::default()
    };
    change(&mut settings);
    Nats::new(&settings, destination).unwrap()
}

pub(crate) fn amqp(
    url: impl Into<Secret>,
    destination: DestinationSettings,
    change: impl FnOnce(&mut AmqpSettings),
) -> Amqp {
    let mut settings = AmqpSettings {
        url: url.into(),
        ..AmqpSettings::default()
    };
    change(&mut settings);
    Amqp::new(&settings, destination).unwrap()
}

/// A Kafka sink with a topic for each type.
pub(crate) fn kafka(
    servers: &str,
    destination: DestinationSettings,
    change: impl FnOnce(&mut KafkaSettings),
) -> Kafka {
    let mut settings = KafkaSettings {
        brokers: vec![servers.to_owned()],
        topic: "{type}".to_owned(),
        ..KafkaSettings::default()
    };
    // The client finds a broker that is up again before the timeout of the next offer.
    for (name, millis) in [
        ("reconnect.backoff.ms", "10"),
        ("reconnect.backoff.max.ms", "50"),
    ] {
        settings.properties.insert(name.to_owned(), millis.into());
    }
    change(&mut settings);
    Kafka::new(&settings, destination).unwrap()
}

/// Sets a property of librdkafka.
pub(crate) fn property(name: &str, value: &str) -> impl FnOnce(&mut KafkaSettings) {
    move |settings| {
        settings.properties.insert(name.to_owned(), value.into());
    }
}

pub(crate) fn redis(
    url: impl Into<Secret>,
    destination: DestinationSettings,
    change: impl FnOnce(&mut RedisSettings),
) -> Redis {
    let mut settings = RedisSettings {
        url: url.into(),
        ..RedisSettings::default()
    };
    change(&mut settings);
    Redis::new(&settings, destination).unwrap()
}

/// A sink of the consumer `hapax` and the table `inbox_event`.
pub(crate) fn postgres(
    url: impl Into<Secret>,
    destination: DestinationSettings,
    change: impl FnOnce(&mut PostgresSettings),
) -> Postgres {
    let mut settings = PostgresSettings {
        url: url.into(),
        consumer: "hapax".to_owned(),
        table: "inbox_event".to_owned(),
        ..PostgresSettings::default()
    };
    change(&mut settings);
    Postgres::new(&settings, destination).unwrap()
}

/// The id of the key of [`s3`], [`sqs`] and [`sns`].
pub(crate) const ACCESS_KEY_ID: &str = "AKIDEXAMPLE";
/// The secret of that key.
pub(crate) const ACCESS_KEY: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// A sink of the bucket `events`, which may connect to this machine.
pub(crate) fn s3(
    endpoint: &str,
    destination: DestinationSettings,
    change: impl FnOnce(&mut S3Settings),
) -> S3 {
    let mut settings = S3Settings {
        endpoint: endpoint.to_owned(),
        region: REGION.to_owned(),
        bucket: "events".to_owned(),
        access_key_id: ACCESS_KEY_ID.to_owned(),
        secret_access_key: ACCESS_KEY.into(),
        allow: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        ..S3Settings::default()
    };
    change(&mut settings);
    S3::new(&settings, destination, clock()).unwrap()
}

/// A sink of a queue, which may connect to this machine.
pub(crate) fn sqs(
    queue_url: &str,
    destination: DestinationSettings,
    change: impl FnOnce(&mut SqsSettings),
) -> Sqs {
    let mut settings = SqsSettings {
        queue_url: queue_url.to_owned(),
        region: REGION.to_owned(),
        access_key_id: ACCESS_KEY_ID.to_owned(),
        secret_access_key: ACCESS_KEY.into(),
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        ..SqsSettings::default()
    };
    change(&mut settings);
    Sqs::new(&settings, destination, clock()).unwrap()
}

/// A sink of a topic at this endpoint, which may connect to this machine.
pub(crate) fn sns(
    endpoint: &str,
    topic_arn: &str,
    destination: DestinationSettings,
    change: impl FnOnce(&mut SnsSettings),
) -> Sns {
    let mut settings = SnsSettings {
        topic_arn: topic_arn.to_owned(),
        endpoint: Some(endpoint.to_owned()),
        access_key_id: ACCESS_KEY_ID.to_owned(),
        secret_access_key: ACCESS_KEY.into(),
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        ..SnsSettings::default()
    };
    change(&mut settings);
    Sns::new(&settings, destination, clock()).unwrap()
}

/// A sink of a Pub/Sub topic at this endpoint, which may connect to this machine. Its requests are
/// not authenticated.
pub(crate) fn pubsub(
    endpoint: &str,
    topic: &str,
    destination: DestinationSettings,
    change: impl FnOnce(&mut PubsubSettings),
) -> Pubsub {
    let mut settings = PubsubSettings {
        topic: topic.to_owned(),
        endpoint: Some(endpoint.to_owned()),
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        ..PubsubSettings::default()
    };
    change(&mut settings);
    Pubsub::new(&settings, destination, clock()).unwrap()
}
