//! NATS JetStream consumer: durable, and acknowledges each message.

use std::time::Duration;

use async_nats::jetstream::{
    self, AckKind, Message as Taken,
    consumer::{AckPolicy, PullConsumer, pull},
    stream,
};
use futures_util::StreamExt as _;

use super::{Inlet, Message};

const SERVER: &str = "127.0.0.1:4222";

#[derive(Debug)]
pub(crate) struct Subject {
    name: String,
    context: jetstream::Context,
    consumer: PullConsumer,
}

impl Subject {
    pub(super) async fn fresh(name: &str) -> Self {
        let context = context().await;
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![format!("{name}.>")],
            ..stream::Config::default()
        };
        let made = context.create_stream(config).await;
        made.unwrap_or_else(|error| panic!("no JetStream at {SERVER}: {error}"));
        let consumer = consumer(&context, name).await;
        Self {
            name: name.to_owned(),
            context,
            consumer,
        }
    }

    pub(super) fn settings(&self) -> String {
        let name = &self.name;
        format!("{{ url = \"nats://{SERVER}\", subject = \"{name}.{{type}}\" }}")
    }
}

impl Inlet for Subject {
    type Receipt = Taken;

    async fn take(&mut self, max: usize) -> Vec<Message<Taken>> {
        let wait = Duration::from_millis(200);
        let batch = self.consumer.fetch().max_messages(max).expires(wait);
        let mut batch = batch.messages().await.unwrap();
        let mut messages = Vec::new();
        while let Some(taken) = batch.next().await {
            let Ok(taken) = taken else { break };
            let headers = taken.headers.as_ref().unwrap();
            messages.push(Message {
                id: headers.get("Nats-Msg-Id").unwrap().as_str().to_owned(),
                payload: taken.payload.to_vec(),
                receipt: taken,
            });
        }
        messages
    }

    async fn acknowledge(&mut self, receipts: Vec<Taken>) {
        for taken in receipts {
            taken.ack_with(AckKind::Ack).await.unwrap();
        }
    }

    async fn break_off(&mut self) {
        self.context = context().await;
        self.consumer = consumer(&self.context, &self.name).await;
    }

    async fn clear(&mut self) {
        self.context.delete_stream(&self.name).await.unwrap();
    }
}

async fn context() -> jetstream::Context {
    let connected = async_nats::connect(SERVER).await;
    jetstream::new(connected.unwrap_or_else(|error| panic!("no NATS at {SERVER}: {error}")))
}

async fn consumer(context: &jetstream::Context, name: &str) -> PullConsumer {
    let config = pull::Config {
        durable_name: Some("brokers".to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(2),
        ..pull::Config::default()
    };
    let stream = context.get_stream(name).await.unwrap();
    stream
        .get_or_create_consumer("brokers", config)
        .await
        .unwrap()
}
