//! Limits of the sinks, with unit and reason. The limits of the relay are in `hapax::limits`.

use std::time::Duration;

/// Maximum number of idle connections of a webhook: the default concurrency of a destination.
pub const IDLE_CONNECTIONS_MAX: usize = 64;
/// Maximum number of idle connections of a webhook that shares its trusted certificates with others:
/// there may be hundreds of them, and each connection is an open file.
pub const SHARED_IDLE_CONNECTIONS_MAX: usize = 2;
/// Maximum idle time of a connection: less than what servers and load balancers allow.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(50);
/// Size in bytes up to which a payload is mapped on the worker that makes its request. It takes a few
/// milliseconds at most.
pub const MAPPED_INLINE_BYTES: usize = 16 * 1024;
/// Maximum number of larger payloads that a destination, or all endpoints of a process, map at the same
/// time. Each uses a thread, and a server with two cores has to have one for everything else.
pub const MAPPINGS_AT_ONCE: usize = 1;
/// Maximum number of configured headers of a webhook. Servers accept about a hundred headers in all.
pub const WEBHOOK_HEADERS_MAX: usize = 20;
/// Maximum length of the names and values of these headers together in bytes. Many servers accept 8
/// KiB for the head of a request.
pub const WEBHOOK_HEADERS_BYTES_MAX: usize = 6 * 1024;
/// Minimum length in bytes of a secret that is masked if an endpoint sends it back. A shorter text
/// occurs in responses by chance.
pub const ECHO_BYTES_MIN: usize = 5;
/// Maximum size of the response of a token endpoint in bytes. A token has a few kilobytes at most.
pub const TOKEN_RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// Lifetime of a token whose response does not contain one. Shorter than any usual lifetime.
pub const TOKEN_LIFETIME: Duration = Duration::from_mins(5);
/// Maximum time for which a token is used, even if the response contains a longer lifetime.
pub const TOKEN_LIFETIME_MAX: Duration = Duration::from_hours(24);
/// How long before its expiry a token is replaced: longer than a delivery takes. It is a tenth of
/// the lifetime if that is shorter.
pub const TOKEN_MARGIN_MAX: Duration = Duration::from_secs(30);
/// Minimum wait after a failed fetch of a token, between two replacements of tokens that the
/// endpoint refused, and minimum time for which a token is used.
pub const TOKEN_PAUSE: Duration = Duration::from_secs(1);
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
/// Maximum number of events per object in S3. The relay offers what is due, and does not wait for more.
pub const S3_LINES_MAX: usize = 1_000;
/// Maximum size of an object in bytes, unless it has one event: the size of a destination's window.
pub const S3_OBJECT_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of messages per request to SQS or SNS.
pub const MESSAGES_MAX: usize = 10;
/// Maximum size of a request to SQS or SNS in bytes, and so of a message: bodies and attributes.
/// Amazon has raised it for SQS; SNS and services with the same API have not.
pub const MESSAGES_BYTES: usize = 256 * 1024;
/// Maximum length of a message group of SQS and SNS in bytes. A longer order key is hashed.
pub const MESSAGE_GROUP_BYTES_MAX: usize = 128;
/// Maximum length of the name of an SNS topic in bytes, with `.fifo`.
pub const SNS_TOPIC_BYTES_MAX: usize = 256;
/// Maximum number of bytes of a response that are stored for each event of a request to S3, SQS,
/// SNS or Pub/Sub.
pub const BATCH_HEAD_BYTES: usize = 1_024;
/// Maximum number of messages per request to Pub/Sub, which accepts 1,000. If one of them is refused,
/// all are, and a larger request takes longer to divide.
pub const PUBSUB_BATCH: usize = 100;
/// Maximum size of a request to Pub/Sub in bytes. Google accepts 10 MB.
pub const PUBSUB_BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Maximum length of the value of an attribute of Pub/Sub in bytes. A longer one is omitted.
pub const PUBSUB_ATTRIBUTE_BYTES_MAX: usize = 1_024;
/// Lifetime of the tokens that a service account signs: the longest that Google accepts.
pub const PUBSUB_TOKEN: Duration = Duration::from_hours(1);
/// For how long such a token is used: half of its lifetime, so that clocks may differ.
pub const PUBSUB_TOKEN_USED: Duration = Duration::from_mins(30);
