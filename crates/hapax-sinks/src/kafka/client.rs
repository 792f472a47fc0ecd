//! The Kafka producer and its properties.
//!
//! Properties are those of librdkafka. Those on which the guarantees depend are set last and cannot
//! be changed.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rdkafka::{
    ClientConfig, ClientContext,
    config::RDKafkaLogLevel,
    error::KafkaError as ClientError,
    producer::{FutureProducer, Producer as _},
};
use secrecy::{ExposeSecret as _, SecretString};

use super::{KafkaSettings, failure::Failure};
use crate::{
    limits::{KAFKA_QUEUE_EVENTS, KAFKA_QUEUE_KBYTES, KAFKA_RECORD_BYTES_MAX},
    settings::{SettingError, reveal},
};

/// Properties that are set by the sink, because its guarantees depend on them.
const OURS: [&str; 16] = [
    "acks",
    "api.version.request.timeout.ms",
    "bootstrap.servers",
    "delivery.report.only.error",
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "message.timeout.ms",
    "metadata.broker.list",
    "request.required.acks",
    "request.timeout.ms",
    "socket.timeout.ms",
    "transactional.id",
    "topic.metadata.propagation.max.ms",
];
/// How long a record waits for others to share its request.
const LINGER_MS: &str = "1";
/// How late the client may report that a record has timed out.
const LOOK: Duration = Duration::from_millis(1_500);

/// The properties of a producer.
pub(super) struct Properties {
    servers: String,
    timeout: Duration,
    others: BTreeMap<String, SecretString>,
}

/// A producer.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) producer: FutureProducer<Voice>,
    /// Whether each record is sent in its own request.
    pub(super) is_alone: bool,
    voice: Voice,
    is_spent: Arc<AtomicBool>,
}

/// The last error that the producer reported.
#[derive(Clone, Default)]
pub(super) struct Voice(Arc<Mutex<Option<String>>>);

impl Client {
    /// Creates a producer. It connects when there is something to send.
    pub(super) fn new(properties: &Properties, is_alone: bool) -> Result<Self, Failure> {
        let config = properties.config(is_alone);
        let voice = Voice::default();
        let made = config.create_with_context(voice.clone());
        let producer = made.map_err(|error| Failure::Client(refused(&error).to_string()))?;
        let is_spent = Arc::default();
        Ok(Self {
            producer,
            is_alone,
            voice,
            is_spent,
        })
    }

    /// Whether the producer can still be used.
    pub(super) fn is_sound(&self) -> bool {
        !self.is_spent.load(Ordering::Relaxed) && self.producer.client().fatal_error().is_none()
    }

    /// Has the producer replaced: after a topic was forbidden, a producer does not try it again for
    /// minutes, even if the broker permits it by then.
    pub(super) fn replace(&self) {
        self.is_spent.store(true, Ordering::Relaxed);
    }

    pub(super) fn last_words(&self) -> Option<String> {
        let words = self.voice.0.lock();
        words.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Properties {
    /// Checks that a producer can be created with these settings.
    pub(super) fn new(settings: &KafkaSettings, timeout: Duration) -> Result<Self, SettingError> {
        let servers = settings.brokers.join(",");
        if servers.trim().is_empty() {
            return Err(SettingError::new(
                "brokers",
                "must have at least one host:port",
            ));
        }
        let mut others = BTreeMap::new();
        for (name, value) in &settings.properties {
            let path = format!("properties.{name}");
            let value = reveal(&path, value)?;
            if OURS.contains(&name.as_str()) {
                let problem = "is set by the sink and cannot be changed";
                return Err(SettingError::new(path, problem));
            }
            if name == "partitioner" && value.expose_secret().trim() == "random" {
                let problem = "must not be random, which ignores the key, so that an aggregate's \
                               events would not be in order: choose another one, such as \
                               `consistent_random`";
                return Err(SettingError::new(path, problem));
            }
            others.insert(name.clone(), value);
        }
        let properties = Self {
            servers,
            timeout,
            others,
        };
        let config = properties.config(false);
        let made = config.create_with_context::<_, FutureProducer<Voice>>(Voice::default());
        made.map(|_| properties).map_err(|error| refused(&error))
    }

    fn config(&self, is_alone: bool) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Critical);
        config.set("client.id", "hapax");
        config.set("partitioner", "murmur2_random");
        config.set("linger.ms", LINGER_MS);
        config.set("reconnect.backoff.max.ms", "1000");
        config.set("message.max.bytes", KAFKA_RECORD_BYTES_MAX.to_string());
        config.set(
            "queue.buffering.max.messages",
            KAFKA_QUEUE_EVENTS.to_string(),
        );
        config.set("queue.buffering.max.kbytes", KAFKA_QUEUE_KBYTES.to_string());
        for (name, value) in &self.others {
            config.set(name, value.expose_secret());
        }
        config.set("bootstrap.servers", &self.servers);
        config.set("enable.idempotence", "true");
        config.set("acks", "all");
        // The client looks for timed-out records about once a second. It has to report them before
        // the call itself times out.
        let patience = self.timeout.saturating_sub(LOOK).max(self.timeout / 2);
        let millis = patience.as_millis().max(20);
        config.set("message.timeout.ms", millis.to_string());
        // A missing topic or a silent broker is reported before that.
        for name in [
            "topic.metadata.propagation.max.ms",
            "request.timeout.ms",
            "socket.timeout.ms",
            "api.version.request.timeout.ms",
        ] {
            config.set(name, (millis / 2).to_string());
        }
        if is_alone {
            config.set("batch.num.messages", "1");
        }
        config
    }
}

impl ClientContext for Voice {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: ClientError, reason: &str) {
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *words = Some(match error.rdkafka_error_code() {
            Some(code) => format!("{code}: {reason}"),
            None => reason.to_owned(),
        });
    }
}

impl fmt::Debug for Properties {
    /// Prints the brokers, and the names of the properties: values may be passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Properties")
            .field("servers", &self.servers)
            .field("others", &self.others.keys())
            .finish_non_exhaustive()
    }
}

/// The error of the client, without the values that it contains.
fn refused(error: &ClientError) -> SettingError {
    match error {
        ClientError::ClientConfig(_, _, name, _) => {
            let problem = "is unknown, or its value is refused, or this build does not support it";
            SettingError::new(format!("properties.{name}"), problem)
        }
        ClientError::ClientCreation(message) => unusable(message),
        other => unusable(&other.to_string()),
    }
}

fn unusable(message: &str) -> SettingError {
    let problem = format!("are refused by the client: {message}");
    SettingError::new("properties", problem)
}
