//! RabbitMQ consumer: a durable queue, whose messages are acknowledged one by one.

use std::time::Duration;

use futures_util::StreamExt as _;
use hapax_testkit::wait::answered;
use lapin::{
    Channel, Connection, ConnectionProperties, Consumer,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions,
        QueueDeleteOptions,
    },
    types::FieldTable,
};
use tokio::time::timeout;

use super::{BATCH, Inlet, Message};

const URL: &str = "amqp://guest:guest@127.0.0.1:5672";
/// The time that a batch waits for another message.
const WAIT: Duration = Duration::from_millis(20);
/// The maximum time for a response of the broker.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Queue {
    name: String,
    connection: Connection,
    channel: Channel,
    consumer: Consumer,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Queue {
    pub(super) async fn fresh(name: &str) -> Self {
        let (connection, channel) = connect().await;
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let made = channel.queue_declare(name.into(), options, FieldTable::default());
        made.await.unwrap();
        let consumer = consumer(&channel, name).await;
        Self {
            name: name.to_owned(),
            connection,
            channel,
            consumer,
        }
    }

    /// The default exchange routes a message to the queue that has the name of its routing key.
    pub(super) fn settings(&self) -> String {
        format!("{{ url = \"{URL}\", routing_key = \"{}\" }}", self.name)
    }
}

impl Inlet for Queue {
    type Receipt = u64;

    async fn take(&mut self, max: usize) -> Vec<Message<u64>> {
        let mut messages = Vec::new();
        while messages.len() < max
            && let Ok(taken) = timeout(WAIT, self.consumer.next()).await
        {
            let delivery = taken.unwrap().unwrap();
            let id = delivery.properties.message_id().clone().unwrap();
            messages.push(Message {
                id: id.as_str().to_owned(),
                payload: delivery.data,
                receipt: delivery.delivery_tag,
            });
        }
        messages
    }

    async fn acknowledge(&mut self, receipts: Vec<u64>) {
        let all = BasicAckOptions { multiple: true };
        let last = receipts.into_iter().max().unwrap();
        self.channel.basic_ack(last, all).await.unwrap();
    }

    async fn break_off(&mut self) {
        let closed = self.connection.close(200, "gone".into());
        answered(PATIENCE, closed).await.unwrap();
        (self.connection, self.channel) = connect().await;
        self.consumer = consumer(&self.channel, &self.name).await;
    }

    async fn clear(&mut self) {
        let options = QueueDeleteOptions::default();
        let gone = self
            .channel
            .queue_delete(self.name.as_str().into(), options);
        answered(PATIENCE, gone).await.unwrap();
    }
}

async fn connect() -> (Connection, Channel) {
    let connected = Connection::connect(URL, ConnectionProperties::default());
    let connected = answered(PATIENCE, connected).await;
    let connection = connected.unwrap_or_else(|error| panic!("no RabbitMQ at {URL}: {error}"));
    let channel = answered(PATIENCE, connection.create_channel());
    let channel = channel.await.unwrap();
    (connection, channel)
}

async fn consumer(channel: &Channel, queue: &str) -> Consumer {
    let most = u16::try_from(BATCH).unwrap();
    let limited = channel.basic_qos(most, BasicQosOptions::default());
    answered(PATIENCE, limited).await.unwrap();
    let options = BasicConsumeOptions::default();
    let made = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
    answered(PATIENCE, made).await.unwrap()
}
