//! The mock cluster of librdkafka, which speaks the real protocol and fails on request.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use hapax_sinks::{kafka::Kafka, settings::DestinationSettings};
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    message::{Headers as _, OwnedMessage},
    mocking::MockCluster,
    producer::DefaultProducerContext,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};

use crate::{events::PATIENCE, sinks};

type Broker = MockCluster<'static, DefaultProducerContext>;
type Order = Box<dyn FnOnce(&Broker) + Send>;

/// A cluster, usually of one broker, which runs until it is dropped.
pub(crate) struct Cluster {
    pub(crate) servers: String,
    orders: Mutex<Option<mpsc::Sender<Order>>>,
    /// Created once, because creating and dropping a consumer takes almost a second.
    reader: Arc<Mutex<Option<BaseConsumer>>>,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Starts a cluster of one broker. Each topic has the given number of partitions.
    pub(crate) fn start(topics: &[(&str, i32)]) -> Self {
        Self::of(1, topics)
    }

    /// Starts a cluster of several brokers. Each topic has the given number of partitions.
    pub(crate) fn of(brokers: i32, topics: &[(&str, i32)]) -> Self {
        let (orders, received) = mpsc::channel::<Order>();
        let (servers, said) = mpsc::channel();
        let thread = thread::spawn(move || {
            // The cluster must stay on its thread.
            let broker = MockCluster::new(brokers).expect("librdkafka must provide a mock cluster");
            servers.send(broker.bootstrap_servers()).unwrap();
            for order in received {
                order(&broker);
            }
        });
        let cluster = Self {
            servers: said.recv().unwrap(),
            orders: Mutex::new(Some(orders)),
            reader: Arc::default(),
            thread: Some(thread),
        };
        for (topic, partitions) in topics {
            let (topic, partitions) = ((*topic).to_owned(), *partitions);
            cluster.tell(move |broker| broker.create_topic(&topic, partitions, brokers).unwrap());
        }
        cluster
    }

    /// A sink of this cluster.
    pub(crate) fn sink(&self, destination: DestinationSettings) -> Kafka {
        sinks::kafka(&self.servers, destination, |_| {})
    }

    /// A sink of this cluster, with a property of librdkafka.
    pub(crate) fn sink_with(&self, name: &str, value: &str) -> Kafka {
        let property = sinks::property(name, value);
        sinks::kafka(&self.servers, sinks::destination(), property)
    }

    /// Calls `order` with the cluster. Returns when it is done.
    pub(crate) fn tell(&self, order: impl FnOnce(&Broker) + Send + 'static) {
        let (done, is_done) = mpsc::channel();
        let order: Order = Box::new(move |broker| {
            order(broker);
            done.send(()).unwrap();
        });
        let orders = self.orders.lock().unwrap();
        orders.as_ref().unwrap().send(order).unwrap();
        is_done.recv().unwrap();
    }

    /// Responds with this error to the next requests to produce.
    pub(crate) fn refuse(&self, error: RDKafkaRespErr, times: usize) {
        self.tell(move |broker| broker.request_errors(RDKafkaApiKey::Produce, &vec![error; times]));
    }

    /// Accepts all requests again.
    pub(crate) fn heal(&self) {
        self.tell(|broker| {
            broker.clear_request_errors(RDKafkaApiKey::Produce);
            broker.broker_round_trip_time(1, Duration::ZERO).unwrap();
            broker.broker_up(1).unwrap();
        });
    }

    /// All records of a topic, partition by partition; none while the cluster is down.
    pub(crate) async fn records(&self, topic: &str) -> Vec<OwnedMessage> {
        let (servers, topic) = (self.servers.clone(), topic.to_owned());
        let reader = Arc::clone(&self.reader);
        let read = tokio::task::spawn_blocking(move || {
            let mut reader = reader.lock().unwrap();
            read_all(reader.get_or_insert_with(|| consumer(&servers)), &topic)
        });
        read.await.unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.orders.lock().unwrap().take();
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// A header of a record as text.
pub(crate) fn header(record: &OwnedMessage, name: &str) -> Option<String> {
    let mut headers = record.headers()?.iter();
    let header = headers.find(|header| header.key == name)?;
    let value = header.value.expect("a header must have a value");
    Some(String::from_utf8(value.to_vec()).unwrap())
}

fn consumer(servers: &str) -> BaseConsumer {
    ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("group.id", "test")
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "10")
        .set("reconnect.backoff.ms", "10")
        .set("reconnect.backoff.max.ms", "50")
        .create()
        .unwrap()
}

fn read_all(consumer: &BaseConsumer, topic: &str) -> Vec<OwnedMessage> {
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).unwrap();
    let mut places = TopicPartitionList::new();
    let mut expected = 0;
    for partition in metadata.topics()[0].partitions() {
        let (low, high) = consumer
            .fetch_watermarks(topic, partition.id(), PATIENCE)
            .unwrap();
        expected += usize::try_from(high - low).unwrap();
        let place = Offset::Offset(low);
        places
            .add_partition_offset(topic, partition.id(), place)
            .unwrap();
    }
    consumer.assign(&places).unwrap();
    let mut records = Vec::new();
    while records.len() < expected {
        let record = consumer
            .poll(PATIENCE)
            .expect("the record must exist")
            .unwrap();
        records.push(record.detach());
    }
    consumer.unassign().unwrap();
    records.sort_by_key(|record| (record.partition(), record.offset()));
    records
}
