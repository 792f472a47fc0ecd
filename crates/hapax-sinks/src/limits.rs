//! Limits of the sinks, with unit and reason. The limits of the relay are in `hapax::limits`.

use std::time::Duration;

/// Maximum number of idle connections of a webhook: the default concurrency of a destination.
pub const IDLE_CONNECTIONS_MAX: usize = 64;
/// Maximum idle time of a connection: less than what servers and load balancers allow.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(50);
/// Ping interval of a busy HTTP/2 connection, and the timeout of the response.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Maximum number of events per write to a file. Each write waits for the disk.
pub const LINES_MAX: usize = 512;
/// Maximum number of idle connections to a mail server.
pub const IDLE_MAILS_MAX: usize = 8;
/// Maximum idle time of a connection to a mail server. Servers must allow five minutes; many do
/// not.
pub const IDLE_MAIL: Duration = Duration::from_secs(30);
/// Idle time up to which a connection to a mail server is used without a check.
pub const IDLE_MAIL_TRUSTED: Duration = Duration::from_secs(1);
/// Maximum length of a subject in bytes. A longer one is a mistake in a template.
pub const SUBJECT_BYTES_MAX: usize = 900;
/// Maximum size of a file of certificates in bytes. The certificates of all public authorities take a
/// quarter of it.
pub const CA_BYTES_MAX: u64 = 1024 * 1024;
/// Timeout of connecting and logging in to a broker or a database: less than a delivery has.
pub const CONNECT: Duration = Duration::from_secs(5);
/// Timeout of a DNS lookup: two tries of 5 s, as resolvers make them, and less than a delivery has.
pub const LOOKUP: Duration = Duration::from_secs(10);
/// Duration from which a DNS lookup counts as slow. A lookup that succeeds takes far less.
pub const LOOKUP_SLOW: Duration = Duration::from_secs(2);
/// How long a lookup is awaited before a second lookup of the same host is started next to it.
pub const LOOKUP_LOST: Duration = Duration::from_mins(1);
/// Maximum number of lookups that are not slow, each on a thread. Further ones wait until one of
/// them is finished or slow.
pub const LOOKUPS: usize = 64;
/// Maximum number of slow lookups in progress. While it is reached, no further lookup of a slow
/// host is started.
pub const LOOKUPS_SLOW: usize = 32;
/// Maximum number of hosts that are remembered as slow.
pub const LOOKUP_HOSTS: usize = 1_024;
/// Maximum number of messages per batch to NATS, and of messages that wait for its connection:
/// enough to fill the pipe.
pub const NATS_BATCH: usize = 1_000;
/// Maximum number of subjects per batch for which the server is asked whether a stream lists them,
/// after no stream accepted them. A batch has few such subjects. Further ones are assumed not to be
/// listed by any stream.
pub const NATS_SUBJECTS_ASKED: usize = 16;
/// Timeout of the request for the streams that list a subject. NATS responds at once, or never if
/// the user is not allowed to send the request.
pub const NATS_ASK: Duration = Duration::from_secs(1);
/// Ping interval of an idle NATS connection.
pub const NATS_PING: Duration = Duration::from_secs(10);
/// Maximum length of a NATS subject in bytes. A server closes the connection after a line of more
/// than 4,096 bytes.
pub const NATS_SUBJECT_BYTES_MAX: usize = 3_500;
/// Maximum number of entries per pipeline to Redis.
pub const REDIS_BATCH: usize = 1_000;
/// Maximum length of the fixed part of a stream's name in bytes. A longer one is a mistake in a
/// pattern.
pub const STREAM_NAME_BYTES_MAX: usize = 1_024;
/// Maximum number of events per statement of the PostgreSQL sink.
pub const ROWS: usize = 1_000;
/// Maximum number of events that a call publishes to RabbitMQ before it waits for their confirms.
pub const AMQP_BATCH: usize = 1_000;
/// Heartbeat interval of RabbitMQ in seconds, unless the URL sets one. After two missed heartbeats the connection is closed.
pub const AMQP_HEARTBEAT_SECONDS: u16 = 10;
/// Maximum number of idle channels: the default concurrency of a destination.
pub const AMQP_IDLE_CHANNELS: usize = 32;
/// Maximum number of channels that a batch may lose because of single events. Each costs two round
/// trips.
pub const AMQP_CHANNELS_LOST_MAX: usize = 8;
/// Maximum number of events that a call passes to the Kafka client before it waits for their
/// acknowledgements.
pub const KAFKA_BATCH: usize = 1_000;
/// Maximum number of events queued in the Kafka client, over all calls. Calls wait when it is
/// reached.
pub const KAFKA_QUEUE_EVENTS: usize = 10_000;
/// Maximum number of kilobytes queued in the Kafka client. Calls wait when it is reached.
pub const KAFKA_QUEUE_KBYTES: usize = 64 * 1024;
/// Maximum size of a record in bytes: the largest event with all headers. Brokers have their own
/// limits.
pub const KAFKA_RECORD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum length of a topic name in bytes. Kafka uses the names as file names.
pub const TOPIC_BYTES_MAX: usize = 249;
