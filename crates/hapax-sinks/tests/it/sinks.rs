//! Sinks for the tests: those of an address, with what differs from the default settings.

use std::time::Duration;

use hapax_sinks::{
    amqp::{Amqp, AmqpSettings},
    kafka::{Kafka, KafkaSettings},
    nats::{Nats, NatsSettings},
    postgres::{Postgres, PostgresSettings},
    redis::{Redis, RedisSettings},
    secret::Secret,
    settings::DestinationSettings,
    webhook::{Webhook, WebhookSettings},
};

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
    let mut settings = WebhookSettings {
        url: url.to_owned(),
        secret: SECRET.into(),
        allow: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        ..WebhookSettings::default()
    };
    change(&mut settings);
    Webhook::new(&settings, destination, clock()).unwrap()
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
