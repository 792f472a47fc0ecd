//! The bounds of the sinks, with unit and reason; those of the relay are `hapax::limits`.

#[cfg(any(
    feature = "webhook",
    feature = "smtp",
    feature = "nats",
    feature = "redis",
    feature = "postgres",
    feature = "amqp"
))]
use std::time::Duration;

/// Connections that a webhook keeps for later: what one destination uses at once.
#[cfg(feature = "webhook")]
pub const IDLE_CONNECTIONS_MAX: usize = 64;
/// How long a connection is kept for later: less than what servers and balancers allow.
#[cfg(feature = "webhook")]
pub const IDLE_CONNECTION: Duration = Duration::from_secs(50);
/// How often a busy HTTP/2 connection is asked whether it lives, and how long it may think.
#[cfg(feature = "webhook")]
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Events that one write to a file takes: each write waits for the disk.
#[cfg(feature = "file")]
pub const LINES_MAX: usize = 512;
/// Connections to a mail server that are kept for the next mail.
#[cfg(feature = "smtp")]
pub const IDLE_MAILS_MAX: usize = 8;
/// How long a mail server's connection is kept: servers must allow five minutes, many do not.
#[cfg(feature = "smtp")]
pub const IDLE_MAIL: Duration = Duration::from_secs(30);
/// How long a mail server's connection is taken to live without asking.
#[cfg(feature = "smtp")]
pub const IDLE_MAIL_TRUSTED: Duration = Duration::from_secs(1);
/// Bytes of a mail's subject: more is a mistake in a template.
#[cfg(feature = "smtp")]
pub const SUBJECT_BYTES_MAX: usize = 900;
/// How long a broker or a far database may take to let us in: less than one offer has.
#[cfg(any(
    feature = "nats",
    feature = "redis",
    feature = "postgres",
    feature = "amqp"
))]
pub const CONNECT: Duration = Duration::from_secs(5);
/// How long a look-up of a host is waited for: two tries of 5 s, as resolvers make them, and less
/// than one offer has.
#[cfg(any(
    feature = "webhook",
    feature = "smtp",
    feature = "nats",
    feature = "redis",
    feature = "postgres",
    feature = "amqp"
))]
pub const LOOKUP: Duration = Duration::from_secs(10);
/// How long a look-up may take before it counts as slow: one that is answered takes far less.
#[cfg(any(
    feature = "webhook",
    feature = "smtp",
    feature = "nats",
    feature = "redis",
    feature = "postgres",
    feature = "amqp"
))]
pub const LOOKUP_SLOW: Duration = Duration::from_secs(2);
/// How long a look-up is waited for before another one of the same host begins beside it.
#[cfg(any(
    feature = "webhook",
    feature = "smtp",
    feature = "nats",
    feature = "redis",
    feature = "postgres",
    feature = "amqp"
))]
pub const LOOKUP_LOST: Duration = Duration::from_mins(1);
/// Look-ups that begin at once, each on a thread: those beyond wait until one is over or slow.
#[cfg(any(
    feature = "webhook",
    feature = "smtp",
    feature = "nats",
    feature = "redis",
    feature = "postgres",
    feature = "amqp"
))]
pub const LOOKUPS: usize = 64;
/// Slow look-ups under way at which no further one of a slow host begins.
#[cfg(any(
    feature = "webhook",
    feature = "smtp",
    feature = "nats",
    feature = "redis",
    feature = "postgres",
    feature = "amqp"
))]
pub const LOOKUPS_SLOW: usize = 32;
/// Hosts of which is remembered that they are slow.
#[cfg(any(
    feature = "webhook",
    feature = "smtp",
    feature = "nats",
    feature = "redis",
    feature = "postgres",
    feature = "amqp"
))]
pub const LOOKUP_HOSTS: usize = 1_024;
/// Messages of one batch to NATS, and those that wait for its connection: they fill the pipe.
#[cfg(feature = "nats")]
pub const NATS_BATCH: usize = 1_000;
/// Subjects of one batch that no stream took and of which is asked whether a stream lists them: a
/// batch has few, and what is beyond them is taken for such a subject.
#[cfg(feature = "nats")]
pub const NATS_SUBJECTS_ASKED: usize = 16;
/// How long NATS may take to say which streams list a subject: it answers at once, or never where
/// the user may not ask.
#[cfg(feature = "nats")]
pub const NATS_ASK: Duration = Duration::from_secs(1);
/// How often a silent NATS server is asked whether it lives.
#[cfg(feature = "nats")]
pub const NATS_PING: Duration = Duration::from_secs(10);
/// Bytes of a NATS subject: a server ends the connection over a line of more than 4,096.
#[cfg(feature = "nats")]
pub const NATS_SUBJECT_BYTES_MAX: usize = 3_500;
/// Entries of one pipeline to Redis.
#[cfg(feature = "redis")]
pub const REDIS_BATCH: usize = 1_000;
/// Bytes of the fixed part of a stream's name: more is a mistake in a pattern.
#[cfg(feature = "redis")]
pub const STREAM_NAME_BYTES_MAX: usize = 1_024;
/// Events of one statement to a far database.
#[cfg(feature = "postgres")]
pub const ROWS: usize = 1_000;
/// Events that one call publishes to RabbitMQ before it waits for their confirms.
#[cfg(feature = "amqp")]
pub const AMQP_BATCH: usize = 1_000;
/// How often RabbitMQ is asked for a sign of life: two that are missing end the connection.
#[cfg(feature = "amqp")]
pub const AMQP_HEARTBEAT: Duration = Duration::from_secs(10);
/// Channels that are kept for the next batch: what one destination uses at once.
#[cfg(feature = "amqp")]
pub const AMQP_IDLE_CHANNELS: usize = 32;
/// Channels that one batch may lose over single events: each costs two round trips.
#[cfg(feature = "amqp")]
pub const AMQP_CHANNELS_LOST_MAX: usize = 8;
/// Events that one call hands to Kafka's client before it waits for their acknowledgements.
#[cfg(feature = "kafka")]
pub const KAFKA_BATCH: usize = 1_000;
/// Events that wait in Kafka's client, of all calls; beyond this the calls wait.
#[cfg(feature = "kafka")]
pub const KAFKA_QUEUE_EVENTS: usize = 10_000;
/// Kilobytes that wait in Kafka's client; beyond this the calls wait.
#[cfg(feature = "kafka")]
pub const KAFKA_QUEUE_KBYTES: usize = 64 * 1024;
/// Bytes of one record: the largest event with all its headers; brokers have bounds of their own.
#[cfg(feature = "kafka")]
pub const KAFKA_RECORD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of a topic's name, which Kafka makes files of.
#[cfg(feature = "kafka")]
pub const TOPIC_BYTES_MAX: usize = 249;
