//! Consumers that read from brokers. Each accepts a message and writes its effect in one
//! transaction, and then acknowledges the message.
//!
//! Sometimes a consumer closes the connection before the acknowledgement. The broker then delivers
//! the same messages again. The effect must not happen again.

mod nats;
mod amqp;
mod redis;
#[cfg(feature = "kafka")]
mod kafka;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use hapax_testkit::postgres::connect;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use amqp::Queue;
#[cfg(feature = "kafka")]
use kafka::Topic;
use nats::Subject;
use redis::Stream;

/// The maximum number of messages per transaction.
const BATCH: usize = 200;

/// A message from a broker.
#[derive(Debug)]
struct Message<R> {
    id: String,
    payload: Vec<u8>,
    /// The broker's handle for the acknowledgement.
    receipt: R,
}

/// A queue, subject, stream or topic that only this run uses.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are at most four of them")]
pub(super) enum Broker {
    Nats(Subject),
    Amqp(Queue),
    Redis(Stream),
    #[cfg(feature = "kafka")]
    Kafka(Topic),
}

impl Broker {
    /// Creates the queue, subject, stream or topic with this name at the broker of the sink.
    pub(super) async fn fresh(sink: &str, name: &str) -> Self {
        match sink {
            "nats" => Self::Nats(Subject::fresh(name).await),
            "amqp" => Self::Amqp(Queue::fresh(name).await),
            "redis" => Self::Redis(Stream::fresh(name).await),
            #[cfg(feature = "kafka")]
            "kafka" => Self::Kafka(Topic::fresh(name)),
            other => panic!("this build has no consumer for the sink {other:?}"),
        }
    }

    /// The settings of the sink that writes to this broker.
    pub(super) fn settings(&self) -> String {
        match self {
            Self::Nats(it) => it.settings(),
            Self::Amqp(it) => it.settings(),
            Self::Redis(it) => it.settings(),
            #[cfg(feature = "kafka")]
            Self::Kafka(it) => it.settings(),
        }
    }
}

/// A running consumer.
#[derive(Debug)]
pub(super) struct Consumer(JoinHandle<u64>);

impl Consumer {
    /// Consumes messages until `done` is set.
    pub(super) fn start(broker: Broker, database: &str, done: Arc<AtomicBool>) -> Self {
        let database = database.to_owned();
        Self(tokio::spawn(async move {
            let client = connect(&database).await;
            match broker {
                Broker::Nats(it) => consume(it, "nats", &client, &done).await,
                Broker::Amqp(it) => consume(it, "amqp", &client, &done).await,
                Broker::Redis(it) => consume(it, "redis", &client, &done).await,
                #[cfg(feature = "kafka")]
                Broker::Kafka(it) => consume(it, "kafka", &client, &done).await,
            }
        }))
    }

    /// Waits until the consumer has ended, and returns the number of omitted acknowledgements.
    pub(super) async fn end(self) -> u64 {
        self.0.await.unwrap()
    }
}

/// The operations of a broker that a consumer needs.
trait Inlet {
    type Receipt;

    /// Takes up to `max` messages. If there are none, waits for a short time.
    async fn take(&mut self, max: usize) -> Vec<Message<Self::Receipt>>;

    /// Acknowledges messages.
    async fn acknowledge(&mut self, receipts: Vec<Self::Receipt>);

    /// Closes the connection. The broker delivers the unacknowledged messages again.
    async fn break_off(&mut self);

    /// Deletes everything that was created at the broker.
    async fn clear(&mut self);
}

async fn consume(mut inlet: impl Inlet, consumer: &str, client: &Client, done: &AtomicBool) -> u64 {
    let mut random = fastrand::Rng::with_seed(9);
    let mut omitted = 0;
    while !done.load(Ordering::Relaxed) {
        let messages = inlet.take(BATCH).await;
        if messages.is_empty() {
            continue;
        }
        take_effect(client, consumer, &messages).await;
        if random.u32(0..20) == 0 {
            omitted += 1;
            inlet.break_off().await;
            continue;
        }
        let receipts = messages.into_iter().map(|message| message.receipt);
        inlet.acknowledge(receipts.collect()).await;
    }
    inlet.clear().await;
    omitted
}

/// Accepts the messages and writes their effects in one statement, and therefore in one
/// transaction.
async fn take_effect<R>(client: &Client, consumer: &str, messages: &[Message<R>]) {
    const TAKE: &str = "
        INSERT INTO effect (consumer, nonce)
        SELECT $1::text, payload::json ->> 'nonce'
        FROM (
            SELECT payload,
                   hapax.accept($1::text, id, sha256(convert_to(payload, 'UTF8')), 'brokers') AS taken
            FROM unnest($2::text[], $3::text[]) AS message (id, payload)
            OFFSET 0
        ) AS message
        WHERE taken = 'first' OR 1 / (taken = 'duplicate')::int4 = 0";
    let ids: Vec<_> = messages.iter().map(|message| message.id.as_str()).collect();
    let payloads = messages
        .iter()
        .map(|message| String::from_utf8_lossy(&message.payload));
    let payloads: Vec<_> = payloads.collect();
    let payloads: Vec<&str> = payloads.iter().map(AsRef::as_ref).collect();
    client
        .execute(TAKE, &[&consumer, &ids, &payloads])
        .await
        .unwrap();
}
