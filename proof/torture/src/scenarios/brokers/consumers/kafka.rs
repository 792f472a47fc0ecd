//! Kafka consumer: librdkafka's mock cluster in this process, and a consumer group that commits
//! offsets.

use std::{sync::mpsc, thread, time::Duration};

use rdkafka::{
    ClientConfig, Message as _,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
    message::{Headers as _, OwnedMessage},
    mocking::MockCluster,
};

use super::{Inlet, Message};

/// The mock cluster keeps 5 MiB per partition and drops older messages even if they were not read.
/// All messages of the longest run must fit.
const PARTITIONS: i32 = 32;

pub(crate) struct Topic {
    name: String,
    servers: String,
    consumer: BaseConsumer,
    /// Dropping the sender stops the mock cluster.
    _cluster: mpsc::Sender<()>,
}

impl std::fmt::Debug for Topic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topic")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Topic {
    pub(super) fn fresh(name: &str) -> Self {
        let (ready, is_ready) = mpsc::channel();
        let (cluster, over) = mpsc::channel::<()>();
        let topic = name.to_owned();
        thread::spawn(move || {
            // The mock cluster must stay on the thread that created it.
            let broker = MockCluster::new(1).expect("librdkafka provides a mock cluster");
            broker.create_topic(&topic, PARTITIONS, 1).unwrap();
            ready.send(broker.bootstrap_servers()).unwrap();
            let _over = over.recv();
        });
        let servers = is_ready.recv().unwrap();
        Self {
            consumer: consumer(&servers, name),
            name: name.to_owned(),
            servers,
            _cluster: cluster,
        }
    }

    pub(super) fn settings(&self) -> String {
        format!(
            "{{ brokers = [\"{}\"], topic = \"{}\" }}",
            self.servers, self.name
        )
    }
}

impl Inlet for Topic {
    type Receipt = ();

    async fn take(&mut self, max: usize) -> Vec<Message<()>> {
        let poll = || {
            let mut messages = Vec::new();
            let mut wait = Duration::from_millis(100);
            while messages.len() < max {
                // An error ends the batch. The client recovers by itself.
                let Some(Ok(taken)) = self.consumer.poll(wait) else {
                    break;
                };
                wait = Duration::ZERO;
                let taken = taken.detach();
                messages.push(Message {
                    id: header(&taken, "ce_id"),
                    payload: taken.payload().unwrap_or_default().to_vec(),
                    receipt: (),
                });
            }
            messages
        };
        tokio::task::block_in_place(poll)
    }

    async fn acknowledge(&mut self, _: Vec<()>) {
        let commit = || self.consumer.commit_consumer_state(CommitMode::Sync);
        tokio::task::block_in_place(commit).unwrap();
    }

    async fn break_off(&mut self) {
        self.consumer = tokio::task::block_in_place(|| consumer(&self.servers, &self.name));
    }

    async fn clear(&mut self) {}
}

fn consumer(servers: &str, topic: &str) -> BaseConsumer {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("group.id", "brokers")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", "6000")
        .create()
        .unwrap();
    consumer.subscribe(&[topic]).unwrap();
    consumer
}

fn header(record: &OwnedMessage, name: &str) -> String {
    let mut headers = record.headers().unwrap().iter();
    let header = headers.find(|header| header.key == name).unwrap();
    String::from_utf8(header.value.unwrap().to_vec()).unwrap()
}
